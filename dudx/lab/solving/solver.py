"""Solving is one call: settings by what the problem is, windows where one network does not get there."""

from __future__ import annotations

import math
import shutil
import sys
import tempfile
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dudx.errors import InputError, ModelError
from dudx.lab.named_objects import said
from dudx.lab.problems import Problem
from dudx.lab.run.default_settings import chosen
from dudx.lab.run.metrics import percent
from dudx.lab.run.records import read_metrics
from dudx.lab.run.settings import Settings, make_settings
from dudx.lab.run.trainer import Trainer
from dudx.lab.run.training import trained
from dudx.lab.solving.solution import Solution
from dudx.lab.solving.staged import train_and_look
from dudx.lab.solving.time_windows import can_be_cut, march

#: After these shares of the time the error is estimated: it may be small enough by then; or so large, relative to the
#: number beside, that time is cut into windows.
_LOOKS = ((1 / 8, 0.3), (1 / 4, 0.03), (1 / 2, 0.03), (0.96, math.inf))


def solve(
    problem: Problem,
    minutes: float = 5.0,
    out: str | Path | None = None,
    windows: bool | None = None,
    quiet: bool = False,
    profile: str = "auto",
    enough: float = 5e-6,
    **settings: Any,
) -> Solution:
    """Solve a problem, choosing how by what it is.

    Args:
        problem: the equation, its domain and conditions.
        minutes: at most so many CPU minutes; less where the loss on fresh points has settled before, or the error is
            estimated to be small enough.
        out: a folder for everything the run leaves behind; none unless given (`Solution.save` keeps it later).
        windows: whether to cut time into windows; else that is done where one network does not get there.
        quiet: print nothing.
        profile: the settings to start from.
        enough: the relative error that is, by the estimate; looked at after an eighth, a quarter and half of the time.
        settings: any of `Settings`, instead of what would be chosen.
    """
    if not isinstance(problem, Problem):
        raise InputError(f"solve takes a dudx.lab.Problem; got {type(problem).__name__}.")
    if isinstance(minutes, bool) or not isinstance(minutes, int | float) or not 0 < minutes < float("inf"):
        raise InputError(f"The time to solve in is a positive number of minutes; got {minutes!r}.")
    made = make_settings(problem, profile, **{"seconds": 60.0 * minutes, **settings})
    tell: Callable[[str], None] = (lambda text: None) if quiet else _tell
    tell(_announced(problem, made, settings))
    folder = Path(tempfile.mkdtemp(prefix="dudx-")) if out is None else Path(out)
    solution = _solved(problem, made, folder, windows, enough, tell)
    if out is None:  # the files are there as long as the solution is
        weakref.finalize(solution, shutil.rmtree, folder, True)
    return solution


def _solved(
    problem: Problem,
    made: Settings,
    folder: Path,
    windows: bool | None,
    enough: float,
    tell: Callable[[str], None],
) -> Solution:
    cut = windows is not False and can_be_cut(problem)
    if windows and not cut:
        raise InputError("Only a problem with a time and a start, and without data, can be cut into windows.")
    if windows is False:
        result, trainer = trained(made, folder, problem=problem)
        return _solution(problem, trainer, made, result, folder, tell)
    seconds = made.seconds or math.inf
    spent = 0.0
    if windows is None:
        looks = _LOOKS if cut else [(share, math.inf) for share, _ in _LOOKS]
        found = train_and_look(problem, made, folder, seconds, enough, looks)
        spent = found.result["cpu_seconds"]
        if not found.lost:
            return _solution(problem, found.trainer, made, found.result, found.folder, tell)
        error = f"estimated error {percent(found.error)}" if math.isfinite(found.error) else "its loss is not finite"
        tell(f"One network does not get there ({error}): time is cut into windows.")
    marched = march(problem, made, max(seconds - spent, 0.1 * seconds), folder, tell)
    # Errors add up from window to window, and may grow on the way, which this does not know.
    total = sum(window["estimate"] for window in marched.windows)
    result = {
        "status": "finished", "estimate": {"relative_l2": total}, "cpu_seconds": spent + marched.cpu_seconds,
        "windows": marched.windows, "epochs": int(sum(window["steps"] for window in marched.windows)),
    }  # fmt: skip
    solution = Solution(problem, marched.network, made, result, (), folder)
    tell(f"Estimated relative error {percent(total)} in {result['cpu_seconds']:.0f} CPU seconds.")
    return solution


def _solution(
    problem: Problem,
    trainer: Trainer,
    settings: Settings,
    result: dict[str, Any],
    folder: Path,
    tell: Callable[[str], None],
) -> Solution:
    if result["status"] == "diverged":
        raise ModelError("The loss is not finite: look at the equation where its coefficients or values are singular.")
    solution = Solution(problem, trainer.model, settings, result, read_metrics(folder), folder)
    estimate = "" if solution.estimate is None else f"Estimated relative error {percent(solution.estimate)} "
    tell(f"{estimate}in {result.get('cpu_seconds', 0.0):.0f} CPU seconds, {result['epochs']} steps.")
    for name, value in result.get("unknowns", {}).items():
        tell(f"{name} = {value:.6g}")
    return solution


def _announced(problem: Problem, settings: Settings, given: dict[str, Any]) -> str:
    """What was chosen, to be pasted into a call and changed."""
    keys = ["network", "width", "depth", "dtype", "engine", "optimizer", "weights", "batch", "boundary_batch",
            "initial_batch", "sampling", "memory", "seconds", "settled", *given]  # fmt: skip
    try:
        keys += chosen(problem)
    except Exception as error:  # of the user's equation; training says what is wrong with it
        return f"Solving {problem.title}: nothing can be said of it yet ({said(error)})."
    shown = ", ".join(f"{key}={getattr(settings, key)!r}" for key in dict.fromkeys(keys))
    return f"Solving {problem.title} with\n  solve(problem, {shown})"


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
