"""What the code needs in several places is defined in one: formats of percentages, checks of numbers, walks, lists."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("dudx", "reproduction", "benchmarks", "examples")
TREES = {
    path.relative_to(ROOT).as_posix(): ast.parse(path.read_text(encoding="utf-8"))
    for folder in FOLDERS
    for path in sorted((ROOT / folder).rglob("*.py"))
}
CONTAINERS = {"tuple", "list", "dict", "Mapping", "Sequence"}
#: Functions that call themselves for the items of containers, but not to read or replace the leaves of a tree of
#: tensors, and what they do instead.
OTHER_WALKS = {
    "dudx/backend/open_sizes.py: marked": "compares types exactly, since guards are added to what it returns",
    "dudx/engines/taylor/rules/linear_maps.py: cat": "calls torch.cat",
    "dudx/engines/taylor/rules/matrix_products.py: einsum": "calls torch.einsum",
    "dudx/gradients/parameter_recorder.py: rooted": "compares types exactly: torch's own named tuples are kept",
    "dudx/gradients/parameter_recorder.py: spread": "compares types exactly: torch's own named tuples are kept",
    "dudx/lab/file_formats.py: _fits": "walks a type",
    "dudx/lab/file_formats.py: _jsonable": "writes keys as texts and arrays as lists",
    "dudx/lab/run/checkpoint.py: _stranger": "compares types exactly, and finds keys too",
    "dudx/lab/run/checkpoint.py: refuse_other_kind": "names the place of a value",
    "dudx/lab/run/engine_table.py: _numbers": "writes keys as texts",
    "dudx/lab/run/pieces.py: function": "calls the function of a user's problem",
    "dudx/network/fingerprint.py: inside": "looks into objects and slots, and keeps the path of each value",
    "dudx/network/modules.py: _collect": "looks into objects too, a few levels deep",
    "dudx/residual/field.py: _as_fields": "takes one level",
    "reproduction/record_table.py: _flat": "joins keys to the names of columns",
}


def functions() -> Iterator[tuple[str, ast.FunctionDef]]:
    for file, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                yield file, node


def names_in(node: ast.AST) -> set[str]:
    return {part.id if isinstance(part, ast.Name) else part.attr for part in ast.walk(node) if _named(part)}


def _named(node: ast.AST) -> bool:
    return isinstance(node, ast.Name | ast.Attribute)


def called(node: ast.AST) -> str:
    function = getattr(node, "func", None)
    return getattr(function, "id", getattr(function, "attr", ""))


def percentages(tree: ast.AST) -> Iterator[int]:
    """Lines of f-strings with a number followed by a percent sign, or formatted with one."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FormattedValue) and node.format_spec and "%" in ast.unparse(node.format_spec):
            yield node.lineno
        if isinstance(node, ast.JoinedStr):
            for number, text in zip(node.values, node.values[1:], strict=False):
                in_percent = isinstance(number, ast.FormattedValue) and number.format_spec is not None
                if in_percent and isinstance(text, ast.Constant) and str(text.value).startswith((" %", "%")):
                    yield node.lineno


def test_percentages_are_formatted_in_one_place() -> None:
    found = {file for file, tree in TREES.items() if any(True for _ in percentages(tree))}
    # The figures of the paper are shown with the digits that it gives.
    published = {"reproduction/experiments/accuracy.py", "reproduction/experiments/fig_1.py"}
    assert found - published == {"dudx/errors.py"}
    defined = [f"{file}: {node.name}" for file, node in functions() if "percent" in node.name]
    assert defined == [
        "dudx/errors.py: percent",
        "dudx/errors.py: mean_percent",
        "reproduction/analysis/tables.py: in_percent",  # of a list, by the one before
    ]


def test_whole_numbers_are_checked_in_one_place() -> None:
    """A check of an integer that excludes bools is `dudx.errors.is_whole` or `whole_number`."""
    found = set()
    for file, node in functions():
        checks = [part for part in ast.walk(node) if called(part) == "isinstance" and len(part.args) == 2]  # type: ignore[attr-defined]
        kinds = [names_in(check.args[1]) for check in checks]  # type: ignore[attr-defined]
        if {"bool"} in kinds and ({"int"} in kinds or {"Integral"} in kinds or {"numbers", "Integral"} in kinds):
            found.add(f"{file}: {node.name}")
    read_from_files = {"dudx/lab/run/settings.py: _misread"}  # compares with the type of a setting, whatever it is
    assert found - read_from_files == {"dudx/errors.py: is_whole"}


def test_trees_of_tensors_are_walked_in_one_place() -> None:
    found = set()
    for file, node in functions():
        parts = list(ast.walk(node))
        checks = [part for part in parts if called(part) == "isinstance" or isinstance(part, ast.Compare)]
        if any(called(part) == node.name for part in parts) and any(names_in(c) & CONTAINERS for c in checks):
            found.add(f"{file}: {node.name}")
    walks = {f"dudx/backend/containers.py: {name}" for name in ("flattened", "mapped", "mapped_beside")}
    assert found - set(OTHER_WALKS) == walks


def test_fused_kernels_are_listed_in_one_place() -> None:
    kernels = ("NativeLayerNorm", "NativeBatchNorm", "CudnnBatchNorm", "FusedRmsNorm", "ScaledDotProduct")
    found = {
        file
        for file, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith(kernels)
    }
    assert found == {"dudx/backend/fused_kernels.py"}
