"""The folder of a run: its lock, what it was started with, and its files as they travel to another machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dudx.errors import InputError
from dudx.lab import storage
from dudx.lab.run.checkpoint import FILE as CHECKPOINT
from dudx.lab.run.environment import environment
from dudx.lab.run.settings import Settings, from_toml, to_toml

#: The file that is locked while a run is trained.
LOCK = "run.lock"
CONFIG = "config.toml"


def make_run_folder(folder: Path, settings: Settings) -> None:
    """Make the folder of a run, with what it is started with and where."""
    storage.make_folder(folder)
    storage.write_text(folder / CONFIG, to_toml(settings))
    storage.write_json(folder / "environment.json", environment(settings.seed))


def settings_of(folder: Path, options: Mapping[str, Any]) -> Settings:
    """The settings a run was started with; options given again must be the same."""
    config = folder / CONFIG
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


def packed(folder: Path) -> dict[str, bytes]:
    """The files of a run, to travel; also while it goes on.

    The checkpoint is read first: the tables it refers to only grow, so what is read later has all of its rows.
    """
    names = sorted((path.name for path in folder.iterdir() if path.is_file()), key=lambda name: name != CHECKPOINT)
    return {name: (folder / name).read_bytes() for name in names if name != LOCK and not name.startswith(".")}


def unpack(files: dict[str, bytes], folder: Path) -> None:
    """Write the files of a run; in the end the folder is as `packed` found it, and never claims more than it holds."""
    last = (CHECKPOINT, "result.json", "error.txt")
    folder.mkdir(parents=True, exist_ok=True)
    if "error.txt" not in files:
        (folder / "error.txt").unlink(missing_ok=True)
    for name in sorted(files, key=lambda name: last.index(name) if name in last else -1):
        with storage.atomic(folder / name) as temporary:
            temporary.write_bytes(files[name])
