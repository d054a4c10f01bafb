"""Training: from settings to a folder with a solution, its error and everything needed to trust or resume it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from dudx.errors import InputError
from dudx.lab import storage
from dudx.lab.locks import locked
from dudx.lab.problems import problem as problem_named
from dudx.lab.run.checkpoint import FILE as CHECKPOINT
from dudx.lab.run.folder import LOCK, make_run_folder, settings_of
from dudx.lab.run.ranks import Ranks
from dudx.lab.run.settings import Settings, validated
from dudx.lab.run.trainer import Trainer
from dudx.memory import keep_freed_memory


def train(
    settings: Settings,
    out: str | Path,
    resume: bool = False,
    ranks: Ranks | None = None,
    saved: Callable[[], None] | None = None,
    lock: bool = True,
) -> dict[str, Any]:
    """Train, or go on training, and return what `result.json` says.

    Args:
        settings: what to do; see `make_settings`.
        out: the run's folder, made if it does not exist. A folder that holds a run is refused unless it is resumed.
        resume: go on from the folder's checkpoint. The parameters end bit for bit where an undisturbed run's do.
        ranks: the processes that train together; see `dudx.lab.run.distributed`.
        saved: called whenever a checkpoint is on the disk.
        lock: refuse a folder that another process trains in; False where the caller holds its lock.
    """
    folder = Path(out)
    begun = (folder / CHECKPOINT).exists()  # a run that was killed before its first one has nothing to lose
    if resume:
        settings_of(folder, settings.model_dump())
    elif begun:
        raise InputError(f"There is a run in {str(folder)!r} already; go on with --resume or choose another --out.")
    if settings.threads:
        torch.set_num_threads(settings.threads)
    keep_freed_memory()
    # Everything that can be wrong with the settings comes to light here, before the folder is made.
    trainer = Trainer(problem_named(settings.problem), settings, folder, ranks, saved)
    if not begun:
        make_run_folder(folder, settings)
    with locked(folder / LOCK) if lock else contextlib.nullcontext():
        if begun:
            trainer.checkpoint.load()
        return trainer.run()


def calibrate(settings: Settings, run: Path | None = None) -> list[dict[str, Any]]:
    """The searches by which an engine sets its steps on a fresh network, or on that of a run with such settings."""
    trainer = Trainer(problem_named(settings.problem), settings, Path())
    if run is not None:
        trainer.model.load_state_dict(storage.read_checkpoint(run / CHECKPOINT)["model"])
    trainer.calibrate()
    return trainer.records.calibrations


def settings_to_calibrate(run: Path, problem: str, chosen: Mapping[str, Any]) -> Settings:
    """A run's settings, with another choice of what has to do with its steps only."""
    for key in chosen:
        if not key.startswith("calibration_") and key not in ("engine", "accuracy", "seed"):
            raise InputError(f"The network of a run was made with its own {key}; leave out --set {key}.")
    stored = settings_of(run, {"problem": problem})
    return validated({**stored.model_dump(), **chosen}, given=chosen)
