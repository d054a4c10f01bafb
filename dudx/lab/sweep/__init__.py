"""Sweeps: many independent runs on this machine's cores, that can be stopped at any time.

The runs' folders hold all state. Starting a sweep again resumes stopped runs, retries failed ones, and skips those that
have finished or diverged.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import re
import signal
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from dudx.errors import InputError
from dudx.lab import file_formats
from dudx.lab.locks import locked
from dudx.lab.named_objects import look_up
from dudx.lab.problems import problem
from dudx.lab.run.engine_choice import engine_kind
from dudx.lab.run.networks import networks
from dudx.lab.run.optimizers import optimizers
from dudx.lab.run.preflight import check_machine
from dudx.lab.run.settings import make_settings
from dudx.lab.sweep import local_workers
from dudx.lab.sweep.sweep_progress import SweepProgress
from dudx.lab.sweep.sweep_run import Outcome, Run, outcome

__all__ = ["Outcome", "Run", "grid", "run_sweep"]


def grid(profile: str = "cpu", **axes: Any) -> list[Run]:
    """Return a run per combination of settings: `grid("cpu", problem=["heat"], engine=["ad", "fd"], seed=range(5))`.

    A setting given as a list or range is an axis and part of the runs' names; other settings hold for all runs. Runs
    keep their names when an axis grows later.
    """
    varied = {key: value for key, value in axes.items() if isinstance(value, Sequence) and not isinstance(value, str)}
    fixed = {key: value for key, value in axes.items() if key not in varied}
    empty = next((key for key, value in varied.items() if not len(value)), None)
    if empty is not None:
        raise InputError(f"A sweep over {empty} needs at least one value of it.")
    runs = []
    for values in itertools.product(*varied.values()):
        chosen = dict(zip(varied, values, strict=True))
        settings = {**fixed, **chosen}
        if "problem" not in settings:
            raise InputError("A sweep needs a problem: grid(problem=[...], engine=[...], seed=[...]).")
        runs.append(Run(_name(chosen), make_settings(settings.pop("problem"), profile, **settings)))
    return runs


def _name(chosen: dict[str, Any]) -> str:
    """Name a run by its values; problem and engine stand without their keys: burgers-ad-width64-seed0."""
    words = [str(value) if key in ("problem", "engine") else f"{key}{value}" for key, value in chosen.items()]
    return re.sub(r"[^A-Za-z0-9._+-]+", "_", "-".join(words)) or "run"


def run_sweep(
    runs: Sequence[Run],
    folder: str | Path,
    workers: int | None = None,
    retries: int = 2,
) -> list[Outcome]:
    """Train every run and return their outcomes in order.

    Ctrl-C or SIGTERM lets every run finish its epoch and save; the status of those runs is then "interrupted". In a
    script, call this below `if __name__ == "__main__":`, since worker processes import the script.

    Args:
        runs: the runs to train; see `grid`. A run without a number of threads gets one thread.
        folder: receives a folder per run.
        workers: number of simultaneous processes; by default as many as the cores allow, and one on a GPU.
        retries: how often a run is resumed after its process died.
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):  # as multiprocessing itself checks
        raise InputError(
            "A sweep starts processes, which import this script; put the call below if __name__ == '__main__':."
        )
    runs = [Run(run.name, run.settings.model_copy(update={"threads": run.settings.threads or 1})) for run in runs]
    folder = Path(folder)
    _check(runs, workers, retries)
    file_formats.make_folder(folder)
    with locked(folder / "sweep.lock"):
        found = {run.name: outcome(run, folder / run.name) for run in runs}
        left = {run.name: run for run in runs if not found[run.name].final}
        if left:
            at_once = workers or suggested_workers(runs)
            with politely_stopped(), SweepProgress(len(runs), len(runs) - len(left)) as shown:
                try:
                    with closing(local_workers.work([*left.values()], folder, at_once, retries)) as done:
                        for run, reason in done:
                            del left[run.name]
                            known = outcome(run, folder / run.name)
                            if reason is not None and not known.final:
                                known = Outcome(run.name, run.settings, "failed", known.result, reason)
                            found[run.name] = known
                            shown.update(known)
                except KeyboardInterrupt:
                    for name, run in left.items():  # including those that failed before and were retried
                        now = outcome(run, folder / name)
                        found[name] = now if now.final else replace(now, status="interrupted")
        return [found[run.name] for run in runs]


def suggested_workers(runs: Sequence[Run]) -> int:
    """Return how many runs fit the cores with their threads; 1 on a GPU."""
    if any(run.settings.device.startswith("cuda") for run in runs):
        return 1
    return max(1, cores() // max((run.settings.threads or 1 for run in runs), default=1))


def cores() -> int:
    """Return the number of cores this process may use, which can be fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _check(runs: Sequence[Run], workers: int | None, retries: int) -> None:
    """Raise before the first run begins if the sweep cannot work."""
    names = [run.name for run in runs]
    double = next((name for name, times in Counter(names).items() if times > 1), None)
    if double is not None:
        raise InputError(f"Two runs of the sweep are named {double!r}; each needs a folder of its own.")
    for name in names:
        if not name or name in (".", "..") or "/" in name or "\\" in name:
            raise InputError(f"The name of a run becomes a folder; {name!r} cannot be one.")
    if workers is not None and workers < 1:
        raise InputError(f"A sweep needs at least one worker; got {workers}.")
    if retries < 0:
        raise InputError(f"The number of retries cannot be negative; got {retries}.")
    made = {name: problem(name) for name in dict.fromkeys(run.settings.problem for run in runs)}
    for settings in (run.settings for run in runs):
        check_machine(made[settings.problem], settings)
        engine_kind(settings.engine)
        look_up(settings.network, networks(), "network")
        look_up(settings.optimizer, optimizers(), "optimizer")


@contextmanager
def politely_stopped() -> Iterator[None]:
    """Treat SIGTERM as Ctrl-C."""
    if threading.current_thread() is not threading.main_thread():  # only the main thread may set handlers
        yield
        return
    previous = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
