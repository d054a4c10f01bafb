"""Solve one problem once and score it."""

from __future__ import annotations

import resource
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import dudx
from benchmarks.pinnacle.references.exact import Formula
from benchmarks.pinnacle.references.registry import SOURCES, samples_of
from benchmarks.pinnacle.suite_data import suite_values
from dudx.errors import DudxError, InputError
from dudx.lab import Problem
from dudx.lab.named_objects import said
from dudx.lab.run.metrics import l2_relative
from dudx.lab.solving.solution import Solution
from dudx.lab.solving.solver import solve
from examples.run_gallery import lines_of, loaded, reduce_colours

FOLDER = Path(__file__).parent / "problems"


def stated(name: str, data: Path | None = None) -> tuple[Problem, bool]:
    """Return a problem by the name of its file, and True if its statement was made with the suite's data."""
    given = loaded(FOLDER / f"{name}.py").problem
    if isinstance(given, Problem):
        return given, False
    found = given(data)
    if not isinstance(found, Problem):
        raise InputError(f"{name}.py defines neither a problem nor a function that returns one.")
    return found, data is not None


def limit_of(problem: Problem, minutes: float) -> float:
    """Return the limit in CPU minutes: twice as many with two dimensions in space, or more, and time."""
    return 2 * minutes if problem.time is not None and len(problem.inputs) > 2 else minutes


def one_run(
    name: str, seed: int, minutes: float, settings: Mapping[str, Any], out: Path, kept: Path, data: Path | None
) -> dict[str, Any] | None:
    """Solve a problem and return its row; a failure is a row with the reason, None means interrupted.

    Args:
        name: the name of the problem's file.
        seed: the seed of network and points.
        minutes: the limit for a problem without time or with one dimension in space.
        settings: settings other than the defaults.
        out: the folder for the picture.
        kept: the folder of computed references.
        data: the folder of the suite's files.
    """
    row: dict[str, Any] = {"name": name, "title": name, "seed": seed, "minutes": minutes, "dudx": dudx.__version__}
    try:
        row["lines"] = lines_of(FOLDER / f"{name}.py")
        problem, row["data"] = stated(name, data)
        row |= {"title": problem.title, "limit": limit_of(problem, minutes), "warnings": list(problem.warnings)}
        began = time.process_time()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            solution = solve(problem, row["limit"], quiet=True, seed=seed, **settings)
        row["cpu_seconds"] = time.process_time() - began
        row["warnings"] += sorted({str(one.message) for one in caught} - set(row["warnings"]))
        if solution.result["status"] == "interrupted":
            return None
        row |= {"estimate": solution.estimate, "steps": solution.result["epochs"]}
        row["windows"] = len(solution.result.get("windows", ())) or 1
        row["settings"] = {key: getattr(solution.settings, key) for key in ("width", "depth", "batch", "sampling")}
        row |= _scores(solution, name, kept, data if row["data"] else None)
        if (theirs := suite_values(name, problem, data)) is not None:
            row["suite_error"] = _relative(solution, *theirs)[0]
        _draw(solution, name, out / f"{name}_{seed}.png")
    except (DudxError, ArithmeticError, ValueError, TypeError, RuntimeError, ImportError, MemoryError) as error:
        row["failed"] = said(error)
    row["megabytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return row


def _scores(solution: Solution, name: str, kept: Path, data: Path | None) -> dict[str, Any]:
    found = samples_of(name, solution.problem, kept, data)
    error, errors = _relative(solution, found.points, found.values)
    return {"error": error, "errors": errors, "reference": found.method, "agreement": found.agreement}


def _relative(solution: Solution, points: np.ndarray, values: np.ndarray) -> tuple[float, dict[str, float]]:
    """Return the relative L2 error of all unknown functions together, and of each."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # points of meshes and files are on the boundary up to rounding
        ours = solution(points)
    known = np.isfinite(values)
    errors = {
        function: l2_relative(ours[known[:, i], i], values[known[:, i], i])
        for i, function in enumerate(solution.problem.names)
    }
    return l2_relative(ours[known], values[known]), errors


def _draw(solution: Solution, name: str, path: Path) -> None:
    """Draw the solution, beside it the error where there is a formula, else the residual."""
    source = SOURCES[name]
    reference: Callable[..., Any] | None = source.function if isinstance(source, Formula) else None
    solution.plot(path, None if reference is None else lambda points: reference(points.numpy()))
    reduce_colours(path)
