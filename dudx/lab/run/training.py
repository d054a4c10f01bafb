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
from dudx.lab.run.environment import environment
from dudx.lab.run.ranks import Ranks
from dudx.lab.run.settings import Settings, from_toml, to_toml
from dudx.lab.run.trainer import Trainer

#: The file in a run's folder that is locked while it is trained there.
LOCK = "run.lock"


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
    begun = (folder / "checkpoint.pt").exists()  # a run that was killed before its first one has nothing to lose
    if resume:
        settings_of(folder, settings.model_dump())
    elif begun:
        raise InputError(f"There is a run in {str(folder)!r} already; go on with --resume or choose another --out.")
    if settings.threads:
        torch.set_num_threads(settings.threads)
    # Everything that can be wrong with the settings comes to light here, before the folder is made.
    trainer = Trainer(problem_named(settings.problem), settings, folder, ranks, saved)
    if not begun:
        _make_folder(folder, settings)
    with locked(folder / LOCK) if lock else contextlib.nullcontext():
        if begun:
            trainer.load(storage.read_checkpoint(folder / "checkpoint.pt"))
        return trainer.run()


def settings_of(folder: Path, options: Mapping[str, Any]) -> Settings:
    """The settings a run was started with; options given again must be the same."""
    config = folder / "config.toml"
    if not config.exists():
        raise InputError(f"There is no run in {str(folder)!r} to resume; start it without --resume.")
    stored = from_toml(config.read_text(encoding="utf-8"), str(config))
    for key, value in options.items():
        if value is not None and getattr(stored, key) != value:
            raise InputError(
                f"The run in {str(folder)!r} has {key} = {getattr(stored, key)!r}, not {value!r}; resume it with the "
                "settings it was started with."
            )
    return stored


def calibrate(settings: Settings, run: Path | None = None) -> list[dict[str, Any]]:
    """The error curves of finite differences on a fresh network, or on the network of a finished run."""
    if run is not None:
        stored = settings_of(run, {"problem": settings.problem})
        settings = stored.model_copy(
            update={"engine": "efd", "calibration_candidates": settings.calibration_candidates}
        )
    trainer = Trainer(problem_named(settings.problem), settings, Path())
    if run is not None:
        trainer.model.load_state_dict(storage.read_checkpoint(run / "checkpoint.pt")["model"])
    trainer.calibrate()
    return trainer.calibrations


def _make_folder(folder: Path, settings: Settings) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise storage.StorageError(f"Cannot make the folder {str(folder)!r}: {error.strerror or error}.") from error
    storage.write_text(folder / "config.toml", to_toml(settings))
    storage.write_json(folder / "environment.json", environment(settings.seed))
