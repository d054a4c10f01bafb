"""Training: from settings to a folder with a solution, its error and everything needed to trust or resume it."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

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
from dudx.lab.run.checkpoint import Checkpoint
from dudx.lab.run.folder import LOCK, abandon, begin_run, settings_of
from dudx.lab.run.preflight import check_machine
from dudx.lab.run.ranks import Ranks
from dudx.lab.run.settings import Settings, validated
from dudx.lab.run.trainer import Trainer


def train(
    settings: Settings,
    out: str | Path,
    resume: bool = False,
    ranks: Ranks | None = None,
    saved: Callable[[], None] | None = None,
    lock: bool = True,
    problem: Problem | None = None,
) -> dict[str, Any]:
    """Train, or go on training, and return what `result.json` says.

    Args:
        settings: what to do; see `make_settings`.
        out: the run's folder, made if it does not exist. A folder that holds a run is refused unless it is resumed.
        resume: go on from the folder's checkpoint. The parameters end bit for bit where an undisturbed run's do.
        ranks: the processes that train together; see `dudx.lab.run.distributed`.
        saved: called whenever a checkpoint is on the disk.
        lock: refuse a folder that another process trains in; False where the caller holds its lock.
        problem: what is solved, where it is at hand; else the one that the settings name.
    """
    return trained(settings, out, resume, ranks, saved, lock, problem)[0]


def trained(
    settings: Settings,
    out: str | Path,
    resume: bool = False,
    ranks: Ranks | None = None,
    saved: Callable[[], None] | None = None,
    lock: bool = True,
    problem: Problem | None = None,
    begin: Callable[[Trainer], None] | None = None,
) -> tuple[dict[str, Any], Trainer]:
    """Train like `train` and return the result and the trainer; `begin` may change a new trainer before it starts."""
    folder = Path(out)
    begun = _begun(folder, settings, resume)
    # Everything that can be wrong with the settings comes to light here, before the folder is made.
    problem = problem_named(settings.problem) if problem is None else problem
    for sentence in problem.warnings:
        warnings.warn(sentence, ProblemWarning, stacklevel=2)
    check_machine(problem, settings)
    if settings.threads:  # as many as the machine bears, by now
        torch.set_num_threads(settings.threads)
    keep_freed_memory()
    trainer = Trainer(problem, settings, folder, ranks, saved)
    if begin is not None:
        begin(trainer)
    with _place(folder), locked(folder / LOCK) if lock else contextlib.nullcontext():
        # Once more: another process may have begun or finished a run here before this one held the lock.
        begun = _begun(folder, settings, resume)
        remove_unfinished(folder)
        if begun:
            trainer.checkpoint.load()
        else:
            begin_run(folder, settings)
        try:
            return trainer.run(), trainer
        except Exception:
            if not begun and trainer.epoch == 0:  # what was wrong with it came to light in the first step only
                abandon(folder)
            raise


def _begun(folder: Path, settings: Settings, resume: bool) -> bool:
    """Whether the folder holds a checkpoint; that it may be used as it is asked for."""
    begun = (folder / CHECKPOINT).exists()  # a run that was killed before its first one has nothing to lose
    if resume:
        settings_of(folder, settings.model_dump())
    elif begun:
        raise InputError(f"There is a run in {str(folder)!r} already; go on with --resume or choose another --out.")
    return begun


@contextlib.contextmanager
def _place(folder: Path) -> Iterator[None]:
    """The folder, which is made; one that nothing came to stand in is removed again, with those made for it."""
    made = [place for place in (folder, *folder.parents) if not place.exists()]
    file_formats.make_folder(folder)
    try:
        yield
    finally:
        for place in made:
            with contextlib.suppress(OSError):  # there is something in it
                place.rmdir()


def calibrate(settings: Settings, run: Path | None = None) -> list[dict[str, Any]]:
    """The searches by which an engine sets its steps on a fresh network, or on that of a run with such settings."""
    problem = problem_named(settings.problem)
    check_machine(problem, settings)
    trainer = Trainer(problem, settings, Path())
    if run is not None:
        Checkpoint(run, settings.problem, {"model": trainer.model}).load()
    trainer.calibrate()
    return trainer.records.calibrations


def settings_to_calibrate(run: Path, problem: str, chosen: Mapping[str, Any]) -> Settings:
    """A run's settings, with another choice of what has to do with its steps only."""
    stored = settings_of(run, {"problem": problem})
    for key, value in chosen.items():
        if not key.startswith("calibration_") and key not in ("engine", "accuracy", "seed"):
            if key == "network" and value == stored.network:
                continue
            raise InputError(f"The network of a run was made with its own {key}; leave out --set {key}.")
    if ":" in stored.network and "network" not in chosen:
        raise InputError(
            f"The run in {str(run)!r} has a network of its own, and reading a folder imports nothing; add "
            f"--set network={stored.network} to import it."
        )
    unused = {"optimizer": "adam", "reference_file": None}  # which might be imported and read
    return validated({**stored.model_dump(), **unused, **chosen}, given=chosen)
