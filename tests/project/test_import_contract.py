"""Imports go downwards only: the contract of pyproject.toml is kept, and each part of it can be broken."""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PRIVATE = re.compile(r"\b(?:torch|F|nn\.functional)(?:\.\w+)*\._[a-zA-Z]|from torch[.\w]* import _[a-zA-Z]")
#: A name of torch with a private part, written as code, as the name of a module, or as an attribute to be looked up.
PRIVATE_NAME = re.compile(r"torch(?:\.\w+)*\._[a-zA-Z]\w*")
#: `_fields` is documented by Python, for named tuples.
PRIVATE_ATTRIBUTE = re.compile(r'(?:getattr|hasattr)\(.+?, "(_(?!fields\b)[a-zA-Z]\w*)"')


def checked(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as lint; lint()", "--no-cache"]
    env = {"PYTHONPATH": str(folder), "COLUMNS": "200"}
    return subprocess.run([*command, *options], cwd=folder, env=env, capture_output=True, text=True)


@functools.cache
def as_they_are(contract: str) -> str:
    return checked(ROOT, "--contract", contract).stdout


def test_imports_go_downwards() -> None:
    report = checked(ROOT)
    assert report.returncode == 0, report.stdout + report.stderr


@pytest.mark.parametrize(
    ("contract", "file", "line", "found"),
    [
        ("rooms", "operators.py", "import dudx.engines.autodiff", "dudx.operators -> dudx.engines.autodiff"),
        ("rooms", "engines/interface.py", "import dudx", "dudx.engines.interface -> dudx (l."),  # brings everything
        ("rooms", "evaluate.py", "import dudx.lab.plots", "dudx.evaluate -> dudx.lab.plots"),
        ("rooms", "novelty.py", "", "dudx.novelty"),  # belongs nowhere
        ("laboratory", "lab/problems/problem.py", "import dudx.lab.run.settings", "problems.problem -> dudx.lab.run"),
        ("laboratory", "lab/sweep/sweep_table.py", "from dudx.lab import cli", "sweep.sweep_table -> dudx.lab.cli"),
        ("study", "evaluate.py", "import reproduction.runner", "dudx.evaluate -> reproduction.runner"),
        ("circles", "engines/interface.py", "import dudx.engines.autodiff", ".interface -> .autodiff (1 import)"),
    ],
)
@pytest.mark.parametrize("inside", ["", "def later():\n    "], ids=["at the top", "in a function"])
def test_what_goes_upwards_is_found(
    tmp_path: Path, contract: str, file: str, line: str, found: str, inside: str
) -> None:
    shutil.copytree(ROOT / "dudx", tmp_path / "dudx", ignore=shutil.ignore_patterns("__pycache__", "*.npz"))
    shutil.copytree(ROOT / "reproduction", tmp_path / "reproduction", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    assert found not in as_they_are(contract)
    with (tmp_path / "dudx" / file).open("a", encoding="utf-8") as text:
        text.write(f"\n\n{inside}{line}\n" if line else "\n")
    report = checked(tmp_path, "--contract", contract)
    assert report.returncode == 1, report.stderr
    assert found in report.stdout


def test_private_parts_of_torch_are_in_one_room() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in sorted((ROOT / "dudx").rglob("*.py"))
        if path.parent != ROOT / "dudx" / "backend"
        for line in path.read_text(encoding="utf-8").splitlines()
        if PRIVATE.search(line)
    ]
    assert not found


def test_private_parts_of_torch_are_listed_with_their_file() -> None:
    backend = ROOT / "dudx" / "backend"
    sections = re.split(r"\n\n(\w+\.py)\n", (backend / "__init__.py").read_text(encoding="utf-8"))[1:]
    listed = dict(zip(sections[::2], sections[1::2], strict=True))
    found = {path.name: path.read_text(encoding="utf-8") for path in sorted(backend.glob("[!_]*.py"))}
    assert set(listed) <= set(found)
    for file, code in found.items():
        names = {*PRIVATE_NAME.findall(code), *PRIVATE_ATTRIBUTE.findall(code)}
        missing = [name for name in names if name not in listed.get(file, "")]
        assert not missing, f"{file} uses {missing}, which dudx/backend/__init__.py does not list"
        for name in re.findall(r"torch[.\w]*\.(\w+)", listed.get(file, "")):
            assert re.search(rf"\b{name}\b", code), f"{file} does not use {name}"
