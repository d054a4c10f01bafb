"""Solve a problem by one call."""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dudx.errors import DudxError, InputError, ModelError, percent
from dudx.lab.problems import Problem
from dudx.lab.run.interruption import stop_request
from dudx.lab.run.records import read_metrics
from dudx.lab.run.settings import Settings, make_settings
from dudx.lab.run.training import run_in_folder
from dudx.lab.solving.progress import Callback, Callbacks
from dudx.lab.solving.solution import Solution
from dudx.lab.solving.staged import StagedRun
from dudx.lab.solving.stored_solution import network_settings
from dudx.lab.solving.time_windows import Windows, can_be_cut

#: Settings that are always shown, and those that are never part of a call.
_SHOWN = ("network", "width", "depth", "engine", "optimizer", "batch", "seconds")
_HIDDEN = (
    *("problem", "evaluate_every", "log_every", "checkpoint_every", "estimate", "threads"),
    *("recalibrate", "calibration_points", "calibration_candidates", "calibration_largest"),
)


def solve(
    problem: Problem,
    minutes: float = 5.0,
    out: str | Path | None = None,
    windows: bool | None = None,
    quiet: bool = False,
    profile: str = "auto",
    enough: float = 5e-6,
    resume: bool = False,
    start: Solution | None = None,
    on_step: Callback | None = None,
    on_estimate: Callback | None = None,
    **settings: Any,
) -> Solution:
    """Solve a problem with settings chosen for it.

    One network is trained first. Its error is estimated on the way, without a reference. If it loses the solution of
    an evolution problem, windows of time are trained instead, each with a network of its own. The better of the two by
    the estimate is returned. Ctrl-C returns the best network so far.

    Args:
        problem: the equation, its domain and conditions.
        minutes: the limit in CPU minutes. Training ends earlier if the loss on new points no longer falls or the
            estimated error is small enough. `seconds=` gives the limit in CPU seconds.
        out: a folder for the files of the run; by default a temporary one (`Solution.save` copies it).
        windows: True starts with windows of time, False never uses them.
        quiet: print nothing; Python warnings are still raised.
        profile: the settings to start from.
        enough: the estimated relative error at which training ends.
        resume: continue the run in `out`, with the arguments it was started with.
        start: a solution whose network and constants training starts from, of this problem or of a similar one, with
            other coefficients, values or domain. Its network's settings are used.
        on_step: called with a `Progress` after each step; training ends if it returns True.
        on_estimate: called with a `Progress` after each error estimate; training ends if it returns True.
        settings: any of `Settings`, instead of what would be chosen, such as `device="cuda"`, `seed=1`, `width=64`.
    """
    if not isinstance(problem, Problem):
        raise InputError(f"solve takes a dudx.lab.Problem; got {type(problem).__name__}.")
    if isinstance(minutes, bool) or not isinstance(minutes, int | float) or not 0 < minutes < float("inf"):
        raise InputError(f"The time to solve in is a positive number of minutes; got {minutes!r}.")
    if windows and not can_be_cut(problem):
        raise InputError(
            "This problem cannot be cut into windows: that takes derivatives in time, initial values for all of them, "
            "and neither data nor unknown constants."
        )
    if resume and out is None:
        raise InputError("resume=True continues a run in its folder; give the folder with out=.")
    if start is not None:
        settings = network_settings(start, windows) | settings
    clock = time.process_time()
    report: Callable[[str], None] = (lambda text: None) if quiet else _report
    callbacks = Callbacks(report, on_step, on_estimate)
    begin = None if start is None else (start.network, start.result.get("unknowns", {}))
    with stop_request(quiet) as stop:
        chosen = make_settings(problem, profile, **{"seconds": 60.0 * minutes, **settings})
        report(_announcement(problem, chosen, settings))
        folder = Path(tempfile.mkdtemp(prefix="dudx-")) if out is None else Path(out)
        try:
            result, run = run_in_folder(
                chosen, folder, resume, problem,
                lambda: StagedRun(problem, chosen, folder, windows, enough, callbacks, quiet, stop, clock, begin),
            )  # fmt: skip
            if result["status"] == "diverged":
                raise ModelError(
                    "The loss is not finite: look at the equation where its coefficients or values are singular."
                )
        except BaseException:
            if out is None:
                shutil.rmtree(folder, ignore_errors=True)
            raise
    solution = Solution(problem, run.network, chosen, result, read_metrics(folder), folder)
    if out is None:  # the files exist as long as the solution does
        weakref.finalize(solution, shutil.rmtree, folder, True)
    for sentence in _summary(solution, run, out):
        report(sentence)
    return solution


def _announcement(problem: Problem, settings: Settings, given: dict[str, Any]) -> str:
    """Return the settings as a call that can be pasted and changed."""
    defaults = {key: field.default for key, field in Settings.model_fields.items()}
    chosen = settings.model_dump()
    keys = [k for k in chosen if k in given or k in _SHOWN or (k not in _HIDDEN and chosen[k] != defaults[k])]
    shown = ", ".join(f"{key}={chosen[key]!r}" for key in keys)
    corners = ", ".join(f"({x:g}, {y:g})" for (x, y), _, _ in problem.singular_corners)
    seen = f"\nThe network gets the singular functions of the re-entrant corners {corners}." if corners else ""
    return f"Solving {problem.title} with\n  solve(problem, {shown})" + (seen if settings.network == "featured" else "")


def _summary(solution: Solution, run: StagedRun, out: str | Path | None) -> list[str]:
    """Return what came of the run, in sentences."""
    result, found = solution.result, solution.estimate
    sentences = []
    if result["status"] == "interrupted":
        remedy = " Continue with the same call and resume=True." if out is not None else ""
        sentences.append(f"Interrupted: this is the best network so far.{remedy}")
    if run.accepted and "windows" not in result:
        sentences.append("The windows of time are not better by the estimate: the one network is returned.")
    elif isinstance(run.network, Windows) and found is None:
        sentences.append(
            f"Windows of time are finished up to {run.stage.start:.4g}, and trained up to {run.stage.end:.4g}; later "
            "values are extrapolated."
        )
    because = f", because {solution.no_estimate}" if solution.no_estimate else ""
    error = f"No error estimate{because}" if found is None else f"Estimated relative error {percent(found)}"
    sentences.append(f"{error}, {result['cpu_seconds']:.0f} CPU seconds, {result['epochs']} steps.")
    return sentences + _constants(solution)


def _constants(solution: Solution) -> list[str]:
    """Return the unknown constants, with error bars where the measurements allow them."""
    try:
        return [f"{name} = {constant}" for name, constant in solution.unknowns.items()]
    except DudxError:  # too few measurements, or a network whose samples influence each other
        return [f"{name} = {value:.6g}" for name, value in solution.result.get("unknowns", {}).items()]


def _report(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
