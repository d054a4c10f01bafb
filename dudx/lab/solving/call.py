"""Solving is one call: settings by what the problem is, windows where one network does not get there."""

from __future__ import annotations

import shutil
import sys
import tempfile
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dudx.errors import InputError, ModelError
from dudx.lab.names import said
from dudx.lab.problems import Problem
from dudx.lab.run.choosing import chosen
from dudx.lab.run.metrics import percent
from dudx.lab.run.records import read_metrics
from dudx.lab.run.settings import Settings, make_settings
from dudx.lab.run.trainer import Trainer
from dudx.lab.run.training import trained
from dudx.lab.solving.solution import Solution
from dudx.lab.solving.windows import can_be_cut, march

#: After this share of the time it is decided whether to go on or to cut time into windows, by the estimated error.
_LOOK, _LOST = 0.25, 0.03


def solve(
    problem: Problem,
    minutes: float = 5.0,
    out: str | Path | None = None,
    windows: bool | None = None,
    quiet: bool = False,
    profile: str = "auto",
    **settings: Any,
) -> Solution:
    """Solve a problem, choosing how by what it is.

    Args:
        problem: the equation, its domain and conditions.
        minutes: at most so many CPU minutes of training; less where the loss on fresh points has settled before.
        out: a folder for everything the run leaves behind; none unless given (`Solution.save` keeps it later).
        windows: whether to cut time into windows; else that is done where one network does not get there.
        quiet: print nothing.
        profile: the settings to start from.
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
    solution = _solved(problem, made, folder, minutes, windows, tell)
    if out is None:  # the files are there as long as the solution is
        weakref.finalize(solution, shutil.rmtree, folder, True)
    return solution


def _solved(
    problem: Problem,
    made: Settings,
    folder: Path,
    minutes: float,
    windows: bool | None,
    tell: Callable[[str], None],
) -> Solution:
    seconds = made.seconds or 60.0 * minutes
    if windows is False or not can_be_cut(problem):
        if windows:
            raise InputError("Only a problem with a time and a start, and without data, can be cut into windows.")
        result, trainer = trained(made, folder, problem=problem)
        return _solution(problem, trainer, made, result, folder, tell)
    spent, before = 0.0, None
    if windows is None:
        share = made.model_copy(update={"seconds": _LOOK * seconds, "estimate": True})
        result, before = trained(share, folder / "first", problem=problem)
        spent, lost = result["cpu_seconds"], _estimated(result) > _LOST
        if result["status"] == "interrupted" or (result.get("stopped") == "settled" and not lost):
            return _solution(problem, before, made, result, folder / "first", tell)
        if not lost:
            rest = made.model_copy(update={"seconds": max(seconds - spent, 1.0)})
            result, trainer = trained(rest, folder / "second", problem=problem, begin=_going_on_from(before))
            result = {**result, "cpu_seconds": result["cpu_seconds"] + spent}
            return _solution(problem, trainer, made, result, folder / "second", tell)
        tell(
            f"One network does not get there (estimated error {percent(_estimated(result))}): time is cut into windows."
        )
    marched = march(problem, made, max(seconds - spent, 0.1 * seconds), folder, tell)
    # Errors add up from window to window, and may grow on the way, which this does not know.
    total = sum(window["estimate"] for window in marched.windows)
    found = {
        "status": "finished", "estimate": {"relative_l2": total}, "cpu_seconds": spent + marched.cpu_seconds,
        "windows": marched.windows, "epochs": int(sum(window["steps"] for window in marched.windows)),
    }  # fmt: skip
    solution = Solution(problem, marched.network, made, found, (), folder)
    tell(f"Estimated relative error {percent(total)} in {found['cpu_seconds']:.0f} CPU seconds.")
    return solution


def _estimated(result: dict[str, Any]) -> float:
    found = result.get("estimate")
    return float("inf") if found is None else float(found["relative_l2"])


def _going_on_from(before: Trainer) -> Callable[[Trainer], None]:
    """Begin with another run's network and what its optimizer knows."""

    def begin(trainer: Trainer) -> None:
        trainer.model.load_state_dict(before.model.state_dict())
        for name, part in trainer.first.stateful.items():
            part.load_state_dict(before.first.stateful[name].state_dict())
        trainer.generator.set_state(before.generator.get_state())

    return begin


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
