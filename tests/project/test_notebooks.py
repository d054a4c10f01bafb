"""The notebooks run, cell by cell."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / "docs" / "notebooks"


def run(name: str) -> dict[str, Any]:
    """Run a notebook and return its variables."""
    cells = json.loads((FOLDER / name).read_text(encoding="utf-8"))["cells"]
    space: dict[str, Any] = {}
    for number, cell in enumerate(cells):
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), f"{name}, cell {number}", "exec"), space)
    return space


def test_every_notebook_is_tested() -> None:
    assert {path.name for path in FOLDER.glob("*.ipynb")} == {"first_equation.ipynb", "coupled_networks.ipynb"}


def test_first_equation() -> None:
    assert run("first_equation.ipynb")["error"] < 0.05


def test_coupled_networks() -> None:
    found = run("coupled_networks.ipynb")
    assert found["right"] < 1e-10
    assert found["wrong"] > 1e-3


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.ipynb")), ids=lambda path: path.name)
def test_notebooks_are_kept_without_outputs(path: Path) -> None:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    assert all(not cell.get("outputs") and cell.get("execution_count") is None for cell in cells)
