"""Runs that ended, each as one small file: its settings, what came of it, and the error as it fell.

A run that has such a file is not trained again, whoever asks: `dudx reproduce` and `benchmarks/time_to_accuracy.py`
share a folder of them, which is small enough to be kept with the source. What a run leaves beside that, such as its
network, is not in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from dudx.errors import InputError
from dudx.lab import file_formats
from dudx.lab.run.environment import environment
from dudx.lab.run.records import METRICS, SCORES, read_metrics
from dudx.lab.run.settings import Settings, make_settings, validated
from dudx.lab.sweep.sweep_run import Outcome, Run

#: CPU seconds in training, steps, relative L2 error.
Curve = Sequence[Sequence[float]]
_KEPT = ("status", "stopped", "epochs", "seconds", "cpu_seconds", "parameters", *SCORES, "step", "estimate")


class Archive:
    """A folder of such files."""

    def __init__(self, folder: Path):
        self.folder = folder

    @cached_property
    def _paths(self) -> dict[Settings, Path]:
        """The file of each run that is there."""
        return {_settings(path): path for path in sorted(self.folder.glob("*-seed*.json"))}

    def path(self, settings: Settings) -> Path | None:
        """The file of a run with just these settings."""
        return self._paths.get(settings)

    def outcomes(self, runs: Iterable[Run]) -> dict[str, Outcome]:
        """What became of those runs that are there, by name; the result has the curve and the environment in it."""
        found = {run: self.path(run.settings) for run in runs}
        return {run.name: _outcome(run, path) for run, path in found.items() if path is not None}

    def keep(self, outcome: Outcome, folder: Path) -> None:
        """Write down what became of a run, of which this is the folder, unless that is known."""
        if outcome.final and outcome.result is not None and self.path(outcome.settings) is None:
            path = self.folder / f"{outcome.name}.json"
            write(path, outcome.settings, outcome.result, folder)
            self._paths[outcome.settings] = path


def write(path: Path, settings: Settings, result: dict[str, Any], folder: Path) -> None:
    """Write the file of a run that ended in a folder with this result."""
    file_formats.make_folder(path.parent)
    kept = {name: result[name] for name in _KEPT if name in result}
    here = environment(settings.seed)
    content = {"settings": settings.model_dump(exclude_none=True), **kept, "environment": here}
    file_formats.write_json(path, {**content, "curve": curve(folder)})


def curve(folder: Path) -> list[list[float | None]]:
    """The looks at the error that a run took: CPU seconds, where they were counted, steps, and the error."""
    rows = [row for row in read_metrics(folder) if row["l2_relative"]] if (folder / METRICS).exists() else []
    return [[_number(row.get("cpu_seconds")), int(row["epoch"]), float(row["l2_relative"])] for row in rows]


def _number(text: str | None) -> float | None:
    return float(text) if text else None


def _settings(path: Path) -> Settings:
    """The settings of the run that a file is of."""
    found = file_formats.read_json(path, dict, {"settings": dict, "status": str, "curve": list})
    if "problem" in found["settings"]:
        return validated(found["settings"], where=str(path))
    # The first of these files hold the options alone: problem and profile are in the name, as in "heat-lm-ad-seed0".
    words = path.stem.split("-")
    return make_settings(words[0], "precise" if "precise" in words else "cpu", **found["settings"])


def _outcome(run: Run, path: Path) -> Outcome:
    found = file_formats.read_json(path, dict)
    if found["status"] not in ("finished", "diverged"):
        raise InputError(f"{str(path)!r} is of a run that was not finished; delete it to run it again.")
    del found["settings"]
    return Outcome(run.name, run.settings, found["status"], found)
