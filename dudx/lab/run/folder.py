"""The folder of a run: its lock, its settings, and its files for transfer to another machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dudx.errors import InputError
from dudx.lab import file_formats
from dudx.lab.atomic_files import SUMS, seal
from dudx.lab.run.checkpoint import FILE as CHECKPOINT
from dudx.lab.run.environment import environment
from dudx.lab.run.records import CALIBRATIONS, CONFIG, ENVIRONMENT, METRICS, RESULT, STARTED_WITH
from dudx.lab.run.settings import Settings, from_toml, to_toml

#: The lock file of a run in training.
LOCK = "run.lock"


def begin_run(folder: Path, settings: Settings) -> None:
    """Write the settings and the environment of a new run to its locked folder."""
    (folder / SUMS).unlink(missing_ok=True)  # of a run that was killed before its first checkpoint
    file_formats.write_text(folder / CONFIG, to_toml(settings))
    file_formats.write_json(folder / ENVIRONMENT, environment(settings.seed))
    seal(folder, STARTED_WITH)


def abandon(folder: Path) -> None:
    """Remove the files of a run that failed in its first epoch."""
    for name in (RESULT, SUMS, CHECKPOINT, METRICS, CALIBRATIONS, *STARTED_WITH):
        (folder / name).unlink(missing_ok=True)


def stored_settings(folder: Path, missing: str | None = None) -> Settings:
    """Read the settings in a run's folder."""
    path = folder / CONFIG
    return from_toml(file_formats.read_text(path, missing), str(path))


def settings_of(folder: Path, options: Mapping[str, Any]) -> Settings:
    """Return the settings a run was started with; refuse options that differ from them."""
    stored = stored_settings(
        folder,
        f"There is no run in {str(folder)!r} to resume; start it without resume=True (--resume on the command line).",
    )
    for key, value in options.items():
        if value is not None and getattr(stored, key) != value:
            raise InputError(
                f"The run in {str(folder)!r} has {key} = {getattr(stored, key)!r}, not {value!r}; resume it with the "
                "settings it was started with."
            )
    return stored


def packed(folder: Path) -> dict[str, bytes]:
    """Read the files of a run for a transfer, also during training.

    The checkpoint is read first: the tables it refers to only grow, so what is read later has all of its rows.
    """
    names = sorted((path.name for path in folder.iterdir() if path.is_file()), key=lambda name: name != CHECKPOINT)
    return {name: (folder / name).read_bytes() for name in names if name != LOCK and not name.startswith(".")}


def unpack(files: dict[str, bytes], folder: Path) -> None:
    """Write files from `packed`; the folder never refers to files that are not yet there."""
    last = (CHECKPOINT, SUMS, RESULT, "error.txt")
    file_formats.make_folder(folder)
    for name in ("error.txt", RESULT, SUMS):
        if name not in files or name == SUMS:  # old sums would not be those of the new files
            (folder / name).unlink(missing_ok=True)
    for name in sorted(files, key=lambda name: last.index(name) if name in last else -1):
        file_formats.write_bytes(folder / name, files[name])
