"""The package stays small enough to read: few rooms, short modules, and every name for one thing only."""

from __future__ import annotations

import ast
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import dudx

PACKAGE = Path(dudx.__file__).parent
MODULES = {path: path.read_text(encoding="utf-8") for path in sorted(PACKAGE.rglob("*.py"))}
TREES = {path: ast.parse(text) for path, text in MODULES.items()}
#: A docstring that begins like this says nothing without the one above it.
DEPENDENT = ("The same", "As above", "As `")


def shown(path: Path) -> str:
    return str(path.relative_to(PACKAGE.parent))


def twice(names: dict[str, list[str]]) -> dict[str, list[str]]:
    return {name: places for name, places in names.items() if len(places) > 1}


def documented() -> Iterator[tuple[str, str]]:
    for path, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                yield f"{shown(path)}: {getattr(node, 'name', 'module')}", ast.get_docstring(node) or ""


def test_the_package_has_few_rooms() -> None:
    entries = {path.name for path in PACKAGE.iterdir()} - {"__pycache__"}
    assert len(entries) <= 15, sorted(entries)


def test_the_import_contract_has_few_layers() -> None:
    contracts = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (rooms,) = [contract for contract in contracts if contract["id"] == "rooms"]
    assert len(rooms["layers"]) <= 14


def test_modules_are_short() -> None:
    lengths = {shown(path): text.count("\n") for path, text in MODULES.items()}
    assert not {name: length for name, length in lengths.items() if length > 350}


def test_no_two_modules_have_one_name() -> None:
    names: dict[str, list[str]] = defaultdict(list)
    for path in MODULES:
        if path.stem not in ("__init__", "__main__"):
            names[path.stem].append(shown(path))
    assert not twice(names)


def test_no_two_classes_have_one_name() -> None:
    names: dict[str, list[str]] = defaultdict(list)
    for path, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                names[node.name].append(shown(path))
    assert not twice(names)


def test_docstrings_stand_alone() -> None:
    assert not [place for place, text in documented() if text.startswith(DEPENDENT)]
