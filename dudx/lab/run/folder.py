"""The folder of a run: its lock and its settings."""

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
