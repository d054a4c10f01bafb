"""Train a network by settings, in a folder that holds everything needed to examine or resume the run."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import torch

from dudx.backend.memory import keep_freed_memory
from dudx.errors import InputError
from dudx.lab import file_formats
from dudx.lab.atomic_files import remove_unfinished
from dudx.lab.locks import locked
from dudx.lab.problems import Problem
from dudx.lab.problems import problem as problem_named
from dudx.lab.problems.well_posedness import ProblemWarning
from dudx.lab.run.checkpoint import FILE as CHECKPOINT
from dudx.lab.run.folder import LOCK, abandon, begin_run, settings_of
from dudx.lab.run.loop import Loop
from dudx.lab.run.preflight import check_machine
from dudx.lab.run.settings import Settings
from dudx.lab.run.trainer import Trainer

Run = TypeVar("Run", bound=Loop)


def train(
    settings: Settings,
    out: str | Path,
    resume: bool = False,
    saved: Callable[[], None] | None = None,
    lock: bool = True,
    problem: Problem | None = None,
) -> dict[str, Any]:
    """Train or resume, and return the content of `result.json`.

    Args:
        settings: see `make_settings`.
        out: the run's folder, created if it does not exist. A folder that holds a run is refused unless resumed.
        resume: continue from the folder's checkpoint. The parameters end bit for bit as those of an undisturbed run.
        saved: called after each checkpoint is written.
        lock: refuse a folder in which another process trains; False if the caller holds the lock.
        problem: the problem to solve; by default the one that the settings name.
    """
    problem = problem_named(settings.problem) if problem is None else problem
    return run_in_folder(settings, out, resume, problem, lambda: Trainer(problem, settings, Path(out), saved), lock)[0]


def run_in_folder(
    settings: Settings, out: str | Path, resume: bool, problem: Problem, make: Callable[[], Run], lock: bool = True
) -> tuple[dict[str, Any], Run]:
    """Run the loop that `make` constructs, in a folder with one lock; return the result and the loop."""
    folder = Path(out)
    _begun(folder, settings, resume)
    # Everything that can be wrong with the settings is reported here, before the folder is created.
    check_machine(problem, settings)
    for sentence in problem.warnings:
        warnings.warn(sentence, ProblemWarning, stacklevel=2)
    if settings.threads:  # checked by now
        torch.set_num_threads(settings.threads)
    keep_freed_memory()
    loop = make()
    with _created(folder), locked(folder / LOCK) if lock else contextlib.nullcontext():
        # Once more: another process may have used the folder before this one held the lock.
        begun = _begun(folder, settings, resume)
        remove_unfinished(folder)
        if begun:
            loop.checkpoint.load()
        else:
            begin_run(folder, settings)
        try:
            return loop.run(), loop
        except Exception:
            if not begun and loop.epoch == 0:  # an error that only the first step revealed
                abandon(folder)
            raise


def _begun(folder: Path, settings: Settings, resume: bool) -> bool:
    """Return True if the folder holds a checkpoint; refuse a folder that must not be used."""
    begun = (folder / CHECKPOINT).exists()  # a run that was killed before its first checkpoint has nothing to lose
    if resume:
        settings_of(folder, settings.model_dump())
    elif begun:
        raise InputError(
            f"There is a run in {str(folder)!r} already. Continue it with resume=True (--resume on the command line) "
            "or choose another folder with out (--out)."
        )
    return begun


@contextlib.contextmanager
def _created(folder: Path) -> Iterator[None]:
    """Create a folder; remove it again, with the parents created for it, if it stays empty."""
    created = [place for place in (folder, *folder.parents) if not place.exists()]
    file_formats.make_folder(folder)
    try:
        yield
    finally:
        for place in created:
            with contextlib.suppress(OSError):  # it is not empty
                place.rmdir()
