"""One run of a sweep: its folder holds all state, so any process can continue it."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from dudx.backend.compiler import forget_compiled_code
from dudx.errors import DudxError, InputError
from dudx.lab import file_formats
from dudx.lab.atomic_files import remove_unfinished
from dudx.lab.locks import locked
from dudx.lab.run.folder import LOCK, stored_settings
from dudx.lab.run.records import CONFIG, RESULT, read_result
from dudx.lab.run.settings import Settings
from dudx.lab.run.training import train

Status = Literal["finished", "diverged", "failed", "interrupted"]
#: Yields each run as it ends, with the reason of a failure that its folder cannot state.
Work = Generator[tuple["Run", str | None], None, None]

#: Seconds that a process left behind by a killed driver may take to finish its epoch.
_PATIENCE = 120.0


@dataclass(frozen=True)
class Run:
    """The settings of a run and the name of its folder."""

    name: str
    settings: Settings

    @property
    def own_code(self) -> bool:
        """Whether the run uses the user's code, whose modules may keep state from one run to the next."""
        chosen = self.settings
        names = (chosen.problem, chosen.engine, chosen.network, chosen.optimizer, chosen.sampling)
        return any(":" in name and not name.startswith("torch.") for name in names)


@dataclass(frozen=True)
class Outcome:
    """The outcome of a run: the content of its `result.json`, or the reason why there is none."""

    name: str
    settings: Settings
    status: Status
    result: dict[str, Any] | None = None
    reason: str | None = None

    @property
    def final(self) -> bool:
        """Whether the run has finished or diverged, so that running it again would change nothing."""
        return self.status in ("finished", "diverged")


def outcome(run: Run, folder: Path) -> Outcome:
    """Read the outcome of a run from its folder; refuse a folder that holds a run with other settings."""
    begun = (folder / CONFIG).exists()
    if begun:
        _refuse_other(folder, stored_settings(folder), run.settings)
    result = read_result(folder) if (folder / RESULT).exists() else None
    if result is not None and result["status"] in ("finished", "diverged"):
        return Outcome(run.name, run.settings, result["status"], result)
    if (folder / "error.txt").exists():
        reason = (folder / "error.txt").read_text(encoding="utf-8", errors="replace").strip()
        return Outcome(run.name, run.settings, "failed", result, reason)
    return Outcome(run.name, run.settings, "interrupted", result, "stopped" if begun else "not begun")


def _refuse_other(folder: Path, stored: Settings, wanted: Settings) -> None:
    for key in Settings.model_fields:
        if getattr(stored, key) != getattr(wanted, key):
            raise InputError(
                f"The run in {str(folder)!r} has {key} = {getattr(stored, key)!r}, not {getattr(wanted, key)!r}; "
                "choose another folder, or delete this one to run it anew."
            )


def execute(run: Run, folder: Path) -> Outcome:
    """Start or resume a run; its folder receives its output and, if it fails, the error.

    The numbers are those of a fresh process, whatever ran in this one before.
    """
    file_formats.make_folder(folder)
    with locked(folder / LOCK, _PATIENCE):
        known = outcome(run, folder)
        if known.final:
            return known
        _tidy(folder)
        if run.settings.compile:
            forget_compiled_code()
        begun = (folder / "checkpoint.pt").exists()
        if not begun:
            (folder / CONFIG).unlink(missing_ok=True)
        with (
            (folder / "train.log").open("a", encoding="utf-8") as log,
            contextlib.redirect_stdout(log),
            contextlib.redirect_stderr(log),
        ):
            try:
                train(run.settings, folder, resume=begun, lock=False)
            except Exception as error:
                traceback.print_exc()
                _write_failure(folder, sentence(error))
        return outcome(run, folder)


def attempt(run: Run, folder: Path) -> tuple[str, str | None]:
    """Execute a run in a worker and return its status, and the reason of a failure that its folder cannot state."""
    try:
        return execute(run, folder).status, None
    except DudxError as error:  # the folder is locked, or the disk is full
        return "failed", sentence(error)


def _tidy(folder: Path) -> None:
    """Remove the error message and the unfinished files of an earlier attempt."""
    (folder / "error.txt").unlink(missing_ok=True)
    remove_unfinished(folder)


def write_death(folder: Path, attempts: int, how: str) -> None:
    """Record in a run's folder that its processes died and that it was given up."""
    file_formats.make_folder(folder)
    _write_failure(folder, f"Its process died, in attempt {attempts} of {attempts} by {how}.")


def _write_failure(folder: Path, reason: str) -> None:
    file_formats.write_text(folder / "error.txt", reason + "\n")


def sentence(error: BaseException) -> str:
    """Return an exception as one line."""
    text = (str(error).strip() or repr(error)).splitlines()[0]
    return text if isinstance(error, DudxError) else f"{type(error).__name__}: {text}"
