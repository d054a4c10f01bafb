"""Solve a gallery of problems with one call each and write one table of results.

    python examples/run_gallery.py [NAMES] [--profile cpu] [--minutes 5]

Problems that have a result already are not solved again. A gallery is a folder of files that each define a `problem`,
and a folder `references` with a file of the same name whose function `reference` returns the reference solution.
References are not read while a problem is solved.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import sys
import time
import tokenize
import tomllib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import typer

from dudx.errors import DudxError, InputError, percent
from dudx.lab import file_formats
from dudx.lab.cli import run_program
from dudx.lab.cli.program import console, folder_option
from dudx.lab.named_objects import said
from dudx.lab.problems import Problem
from dudx.lab.solving.solver import solve

#: CPU minutes per problem and settings, by the name of a profile.
PROFILES: dict[str, tuple[float, dict[str, Any]]] = {
    "cpu": (5.0, {}),
    "smoke": (
        0.01,
        {"width": 6, "depth": 2, "batch": 60, "boundary_batch": 30, "initial_batch": 30, "epochs": 2, "windows": False},
    ),
}
_TABLE = "README.md"
_ROOT = Path(__file__).parents[1]
FOLDER, RESULTS = _ROOT / "examples" / "gallery", _ROOT / "results" / "gallery"

app = typer.Typer(pretty_exceptions_enable=False)


@app.command()
def main(
    names: Annotated[list[str] | None, typer.Argument(help="names of problems; default: all")] = None,
    folder: Annotated[Path, folder_option("folder of the problems")] = str(FOLDER),  # type: ignore[assignment]
    out: Annotated[Path, folder_option("folder of results and pictures")] = str(RESULTS),  # type: ignore[assignment]
    profile: Annotated[str, typer.Option(help="cpu, or smoke for seconds")] = "cpu",
    minutes: Annotated[
        float | None, typer.Option(help="maximum CPU minutes per problem; default: the profile's")
    ] = None,
) -> None:
    """Solve the problems of the gallery that have no result yet, and write one table."""
    rows = run(names or [], folder, out, profile, minutes, console.print)
    console.print(f"{len(rows)} results, the table: {out / _TABLE}")
    if any("failed" in row for row in rows):
        raise typer.Exit(3)


def names_in(folder: Path) -> list[str]:
    """Return the names of the problems in a gallery."""
    found = sorted(path.stem for path in folder.glob("*.py") if not path.stem.startswith("_"))
    if not found:
        raise InputError(f"There is no gallery in {str(folder)!r}: no files with problems; see --folder.")
    return found


def run(
    names: Sequence[str],
    folder: Path,
    out: Path,
    profile: str = "cpu",
    minutes: float | None = None,
    report: Callable[[str], None] = print,
) -> list[dict[str, Any]]:
    """Solve the problems that have no result yet and return the rows of the table, which is written as it grows."""
    if profile not in PROFILES:
        raise InputError(f"A gallery has the profiles {', '.join(PROFILES)}; got {profile!r}.")
    there = names_in(folder)
    if strangers := [name for name in names if name not in there]:
        raise InputError(f"There is no {strangers[0]!r} in the gallery; there are {', '.join(there)}.")
    file_formats.make_folder(out)
    limit, settings = PROFILES[profile]
    given = limit if minutes is None else minutes
    for name in names or there:
        place = out / f"{name}.json"
        # Results with a smaller time limit are computed again.
        if place.exists() and file_formats.read_json(place, dict)["minutes"] >= given:
            continue
        report(f"== {name}")
        row = _row(name, folder, out, given, settings)
        if row is None:
            report(f"{name} was interrupted; the same command goes on with it.")
            break
        file_formats.write_text(place, file_formats.json_text(row))
        report(_line(row))
        write_table(folder, out)
    return write_table(folder, out)


def _row(name: str, folder: Path, out: Path, minutes: float, settings: dict[str, Any]) -> dict[str, Any] | None:
    """Solve one problem and return its row; a failure is a row with the reason, None means interrupted."""
    path, began = folder / f"{name}.py", time.process_time()
    row: dict[str, Any] = {"name": name, "lines": lines_of(path), "minutes": minutes}
    try:
        problem = loaded(path).problem
        if not isinstance(problem, Problem):
            raise InputError(f"{str(path)!r} holds no dudx.lab.Problem named problem.")
        row["title"] = problem.title
        solution = solve(problem, minutes, **settings)
        if solution.result["status"] == "interrupted":
            return None
        row |= {"estimate": solution.estimate, "cpu_seconds": solution.result["cpu_seconds"]}
        row |= {"steps": solution.result["epochs"], "windows": len(solution.result.get("windows", ())) or 1}
        row["settings"] = {key: getattr(solution.settings, key) for key in ("width", "depth", "batch", "sampling")}
        apart = loaded(folder / "references" / f"{name}.py")
        reference = apart.reference()
        row["error"] = solution.error(reference)
        if found := solution.result.get("unknowns"):
            row["unknowns"] = found
        if true := getattr(apart, "UNKNOWNS", None):
            row["unknowns_errors"] = {key: abs(row["unknowns"][key] / value - 1) for key, value in true.items()}
        if found and problem.conditions.data:
            row["intervals"] = {key: [one.low, one.high] for key, one in solution.unknowns.items()}
        solution.plot(out / f"{name}.png", reference if callable(reference) else None)
        reduce_colours(out / f"{name}.png")
    except (DudxError, ArithmeticError, ValueError, TypeError, RuntimeError, ImportError) as error:
        row["failed"] = said(error)
    row["cpu_seconds_in_all"] = time.process_time() - began
    return row


def reduce_colours(path: Path) -> None:
    """Write a picture with 256 colours, at a third of its size."""
    from PIL import Image  # which matplotlib brings along

    with Image.open(path) as picture:
        small = picture.convert("RGB").quantize(256, dither=Image.Dither.NONE)
    with file_formats.atomic(path) as temporary:
        small.save(temporary, format="png", optimize=True)


@contextlib.contextmanager
def _importable(folder: Path) -> Iterator[None]:
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))


def loaded(path: Path) -> ModuleType:
    """Import the module in a file; modules in the same folder can be imported by it."""
    spec = importlib.util.spec_from_file_location(f"gallery_{path.parent.name}_{path.stem}", path)
    if spec is None or spec.loader is None or not path.exists():
        raise InputError(f"There is no file {str(path)!r}.")
    module = importlib.util.module_from_spec(spec)
    with _importable(path.parent):
        spec.loader.exec_module(module)
    return module


def lines_of(path: Path) -> int:
    """Count the lines of code in a file: no empty lines, comments or docstrings."""
    text = path.read_text(encoding="utf-8")
    found: set[int] = set()
    fresh = True
    skipped = {tokenize.COMMENT, tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING, tokenize.ENDMARKER}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NEWLINE:
            fresh = True
        elif token.type in skipped or (token.type == tokenize.STRING and fresh):
            continue  # a string that begins a statement is a docstring
        else:
            fresh = False
            found.update(range(token.start[0], token.end[0] + 1))
    return len(found)


def _line(row: dict[str, Any]) -> str:
    if "failed" in row:
        return f"{row['name']}: failed, {row['failed']}"
    found = f"error {percent(row['error'])}, estimated {percent(row['estimate'])}"
    return f"{row['name']}: {found}, {row['cpu_seconds']:.0f} CPU seconds"


def write_table(folder: Path, out: Path) -> list[dict[str, Any]]:
    """Write the table of all existing results and return its rows."""
    rows = [file_formats.read_json(out / f"{n}.json", dict) for n in names_in(folder) if (out / f"{n}.json").exists()]
    notes = _notes(folder)
    lines = [
        "| problem | relative L2 error | estimated without the reference | CPU seconds | lines | |",
        "|---|---:|---:|---:|---:|---|",
        *(_cells(row, notes.get(row["name"], "")) for row in rows),
    ]
    good = [row["error"] for row in rows if row.get("error") is not None]
    counts = ", ".join(f"{sum(e < limit for e in good)} below {percent(limit)}" for limit in (1e-2, 1e-3, 1e-5))
    text = [
        "# Gallery",
        "",
        f"{len(rows)} problems, each by one call of `solve` with default settings on one thread: {counts}. "
        "`python examples/run_gallery.py` solves those without a result.",
        "",
        *lines,
        "",
    ]
    file_formats.write_text(out / _TABLE, "\n".join(text))
    return rows


def _notes(folder: Path) -> dict[str, str]:
    """Return remarks on the errors by problem, from `references/notes.toml` if it exists."""
    path = folder / "references" / "notes.toml"
    return tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def _cells(row: dict[str, Any], note: str) -> str:
    if "failed" in row:
        return f"| {row.get('title', row['name'])} | - | - | - | {row['lines']} | failed: {row['failed']} |"
    notes = [f"{row['windows']} windows of time"] if row.get("windows", 1) > 1 else []
    intervals = row.get("intervals", {})
    off = {key: value for key, value in row.get("unknowns_errors", {}).items() if key not in intervals}
    notes += [f"{key} off by {percent(value)}" for key, value in off.items()]
    notes += [f"{key} = {(low + high) / 2:.3g} ± {(high - low) / 2:.2g}" for key, (low, high) in intervals.items()]
    notes += [note] if note else []
    return (
        f"| [{row['title']}]({row['name']}.png) | {percent(row['error'])} | {percent(row['estimate'])} | "
        f"{row['cpu_seconds']:.0f} | {row['lines']} | {', '.join(notes)} |"
    )


if __name__ == "__main__":
    run_program(app)
