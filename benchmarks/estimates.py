"""Compare error estimates with true errors, on many problems of which some are badly trained or bad-natured.

    python benchmarks/estimates.py [NAMES] [--out out/estimates] [--again] [--shown] [--page docs/estimates.md]

The problems are the gallery, those of PINNacle with own references, and those of `bad_natured.py`. Each is solved once
with default settings, one network and 5 to 20 CPU seconds; its network is kept in the folder of results, and what has a
result is not done again. `--again` estimates anew with the kept networks. `--shown` runs nothing and prints the table.
"""

from __future__ import annotations

import json
import math
import re
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from torch import nn

from benchmarks.bad_natured import CASES
from benchmarks.pinnacle.one_run import FOLDER as SUITE
from benchmarks.pinnacle.one_run import stated
from benchmarks.pinnacle.references.exact import Formula
from benchmarks.pinnacle.references.registry import SOURCES
from dudx import Taylor
from dudx.errors import DudxError, InputError, percent
from dudx.lab import Problem, estimate, file_formats, problem, solve
from dudx.lab.cli import run_program
from dudx.lab.cli.program import console, folder_option
from dudx.lab.named_objects import said
from dudx.lab.run.settings import Settings
from dudx.lab.run.trainer import make_network
from dudx.lab.solving.values import reference_values
from examples.run_gallery import FOLDER as GALLERY
from examples.run_gallery import loaded, names_in

OUT = Path(__file__).parents[1] / "out" / "estimates"
#: An estimate is right within this factor, and must not be below the second share of the true error.
_FACTOR, _LEAST = 3.0, 0.2
#: Points of a computed reference that are compared.
_POINTS = 50_000
_PLACE = re.compile(r"(<!-- estimates -->\n).*?(<!-- end -->)", re.DOTALL)

app = typer.Typer(pretty_exceptions_enable=False)


@app.command()
def main(
    names: Annotated[list[str] | None, typer.Argument(help="names of problems; default: all")] = None,
    out: Annotated[Path, folder_option("folder of results and networks")] = str(OUT),  # type: ignore[assignment]
    again: Annotated[bool, typer.Option("--again", help="estimate anew with the kept networks")] = False,
    shown: Annotated[bool, typer.Option("--shown", help="run nothing, print the table")] = False,
    page: Annotated[Path | None, typer.Option(help="a page to write the table into as well")] = None,
) -> None:
    """Solve the problems that have no result yet, estimate their errors, and print one table."""
    torch.set_num_threads(1)
    there = cases()
    if strangers := [name for name in names or [] if name not in there]:
        raise InputError(f"There is no problem {strangers[0]!r}; there are {', '.join(there)}.")
    for name in [] if shown else names or there:
        place = out / name / "row.json"
        if again or not place.exists():
            row = row_of(name, there[name], out / name)
            file_formats.write_json(place, row)
            console.print(cells_of(row))
    rows = [
        file_formats.read_json(out / name / "row.json", dict) for name in there if (out / name / "row.json").exists()
    ]
    text = table_of(rows)
    console.print(text, markup=False, soft_wrap=True)
    if page is not None:
        written = file_formats.read_text(page, f"There is no page {str(page)!r}.")
        file_formats.write_text(page, _PLACE.sub(lambda found: f"{found[1]}{text}{found[2]}", written))


@dataclass(frozen=True)
class Case:
    """A problem to solve, what to compare with, CPU seconds, and True if it has other solutions too."""

    problem: Problem
    reference: Any
    seconds: float
    open: bool = False
    #: Computes points and values where there is no reference to be had at once.
    computed: Callable[[], tuple[np.ndarray, np.ndarray]] | None = None


def cases() -> dict[str, Callable[[], Case]]:
    """Return all cases by name; each is made when it is needed."""
    found: dict[str, Callable[[], Case]] = {}
    for name in CASES:
        found[name] = lambda name=name: _bad_natured(name)
    for name, seconds in (("poisson", 5.0), ("burgers", 5.0), ("burgers_20", 20.0), ("heat", 10.0)):
        found[name] = lambda name=name, seconds=seconds: _built_in(name.split("_")[0], seconds)
    for name in names_in(GALLERY):
        found[f"gallery/{name}"] = lambda name=name: _of_gallery(name)
    for name in names_in(SUITE):
        found[f"suite/{name}"] = lambda name=name: _of_suite(name)
    return found


def _bad_natured(name: str) -> Case:
    case = CASES[name]()
    return Case(case.problem, case.solution, case.seconds, case.open)


def _built_in(name: str, seconds: float) -> Case:
    stated = problem(name)
    assert stated.solution is not None
    return Case(stated, stated.solution(), seconds)


def _of_gallery(name: str) -> Case:
    given = loaded(GALLERY / f"{name}.py").problem
    return Case(given, loaded(GALLERY / "references" / f"{name}.py").reference(), _seconds(given))


def _of_suite(name: str) -> Case:
    given, source = stated(name)[0], SOURCES[name]
    if isinstance(source, Formula):
        reference = source.samples(given)
        return Case(given, (reference.points, reference.values), _seconds(given))
    # One resolution is enough to tell a factor of 3.
    return Case(given, None, _seconds(given), computed=lambda: source.compute(False, None))


def _seconds(given: Problem) -> float:
    return 20.0 if given.time is not None and len(given.inputs) > 2 else 10.0


def row_of(name: str, make: Callable[[], Case], folder: Path) -> dict[str, Any]:
    """Estimate the error of a case's network and compare it with the true error; a failure is a row with the reason."""
    row: dict[str, Any] = {"name": name}
    try:
        case = make()
        row |= {"title": case.problem.title, "open": case.open}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            network = network_of(case, folder)
            row["true"], sizes = true_error(case, network, folder)
            # As in training, the network is checked at even points first.
            case.problem.residual(network, case.problem.domain.sobol(256, dtype=torch.float64), Taylor())
        began = time.process_time()
        found = estimate(case.problem, network, Taylor())
        row |= {"seconds": time.process_time() - began, "reason": found.reason}
        row["estimate"] = found.relative_l2
        if found.reason is None and not all(sizes):  # the same functions as in the true error
            errors = [own * size for own, size in zip(found.functions, sizes, strict=True) if size]
            row["estimate"] = float(np.linalg.norm(errors) / np.linalg.norm(sizes))
    except DudxError as error:
        row["failed"] = said(error)
    return row


def network_of(case: Case, folder: Path) -> nn.Module:
    """Return the kept network of a case, or solve it and keep its network; constants take their found values."""
    if not (folder / "network.pt").exists():
        file_formats.make_folder(folder)
        solution = solve(case.problem, seconds=case.seconds, windows=False, quiet=True)
        file_formats.write_json(folder / "facts.json", {"unknowns": solution.result.get("unknowns")})
        file_formats.write_text(folder / "settings.json", solution.settings.model_dump_json())
        torch.save(solution.network.state_dict(), folder / "network.pt")
    settings = Settings(**json.loads((folder / "settings.json").read_text(encoding="utf-8")))
    kept = torch.load(folder / "network.pt")
    network = make_network(case.problem, settings).to(next(iter(kept.values())).dtype)
    network.load_state_dict(kept)
    found = file_formats.read_json(folder / "facts.json", dict)["unknowns"] or {}
    with torch.no_grad():
        for name, parameter in (case.problem.unknowns or {}).items():
            parameter.fill_(found[name])
    return network.eval()


def true_error(case: Case, network: nn.Module, folder: Path) -> tuple[float, list[float]]:
    """Return the relative L2 error over all functions with a reference, and the size of each (0 without one)."""
    reference = case.reference
    if case.computed is not None:
        path = folder / "reference.npz"
        if not path.exists():
            points, values = case.computed()
            chosen = np.random.default_rng(0).permutation(len(points))[:_POINTS]
            file_formats.write_arrays(path, points=points[chosen], values=values[chosen])
        kept = file_formats.read_arrays(path)
        reference = (kept["points"], kept["values"].astype(float))
    x, true = reference_values(reference, None, case.problem)
    dtype = next(network.parameters()).dtype
    with torch.no_grad():
        ours = torch.cat([network(rows) for rows in torch.from_numpy(x).to(dtype).split(8192)]).double().numpy()
    known = np.isfinite(true)
    sizes = np.linalg.norm(np.where(known, true, 0.0), axis=0)
    # A function that is zero has a reference too.
    sizes = np.where(known.any(axis=0), np.maximum(sizes, 1e-12 * sizes.max()), 0.0)
    return float(np.linalg.norm((ours - true)[known]) / np.linalg.norm(true[known])), sizes.tolist()


def table_of(rows: Sequence[dict[str, Any]]) -> str:
    """Return the table and the scores."""
    lines = ["| problem | true error | estimate | estimate / error |", "|---|---:|---:|---:|", *map(cells_of, rows)]
    known = [row for row in rows if row.get("estimate") is not None and not row["reason"] and not row["open"]]
    ratios = [row["estimate"] / row["true"] for row in known]
    none = [row for row in rows if row.get("reason")]
    scores = [f"{len(rows)} problems."]
    if ratios:
        right = sum(1 / _FACTOR < ratio < _FACTOR for ratio in ratios)
        low = sum(ratio < _LEAST for ratio in ratios)
        scores.append(
            f"Of {len(ratios)} estimates on problems with one solution {right} ({percent(right / len(ratios))}) are "
            f"within a factor of {_FACTOR:g}, {low} are below {_LEAST:g} of the true error; the lowest ratio is "
            f"{min(ratios):.2g}, the highest {max(ratios):.2g}."
        )
        scores.append(f"Median CPU seconds per estimate: {np.median([row['seconds'] for row in known]):.1f}.")
    open_ones = [row for row in rows if row.get("open")]
    noticed = sum(bool(row.get("reason")) for row in open_ones)
    scores.append(
        f"{noticed} of {len(open_ones)} problems with several solutions have no estimate, and "
        f"{len(none) - noticed} of the others."
    )
    return "\n".join([*lines, "", " ".join(scores), ""])


def cells_of(row: dict[str, Any]) -> str:
    """Return the row of the table."""
    several = " (several solutions)" if row.get("open") else ""
    if "failed" in row:
        return f"| {row['name']}{several} | - | failed | {row['failed'][:60]} |"
    none = row["reason"] is not None or row["estimate"] is None or math.isinf(row["estimate"])
    found = ("none", "-") if none else (percent(row["estimate"]), f"{row['estimate'] / row['true']:.2g}")
    return f"| {row['name']}{several} | {percent(row['true'])} | {found[0]} | {found[1]} |"


if __name__ == "__main__":
    run_program(app)
