"""Results of a profile on disk: a table of training runs, one table per kind of measurement, and the machines."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from dudx.lab import file_formats
from dudx.lab.atomic_files import digest
from dudx.lab.run.environment import environment
from dudx.lab.run.folder import stored_settings
from dudx.lab.run.records import CONFIG, METRICS, PREDICTION, RESULT, SCORES, read_metrics
from dudx.lab.run.settings import Settings
from dudx.lab.sweep.sweep_run import Outcome, Run, outcome
from reproduction import suite_scores
from reproduction.experiment import Measurement, named
from reproduction.record_table import RecordTable, write_files
from reproduction.suite_scores import SuiteData, missing_scores

#: Entries of a run's `result.json` that are kept.
_KEPT = ("status", "stopped", "epochs", "seconds", "cpu_seconds", "parameters", *SCORES, "step", "estimate")
#: Settings that results are compared by.
COMPARED_BY = ("problem", "engine", "network", "coupled", "recalibrate", "dtype", "seed")
#: The arrays of a predicted solution, in single precision.
_PREDICTED = ("points", "prediction", "reference")
_MACHINES = "machines.json"


class ResultStore:
    """The result tables in one folder.

    `runs.csv` and `runs.npz` hold the training runs: settings that are not defaults, metrics, and the error over time.
    Measurements are in a table named after the measuring module. A row names the machine it was computed on, which
    `machines.json` describes. What is in a table is not computed again.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self._tables: dict[str, RecordTable] = {}

    def table(self, name: str) -> RecordTable:
        """Table of runs (`runs`) or of one kind of measurement."""
        return self._tables.setdefault(name, RecordTable(self.folder, name))

    @property
    def files(self) -> list[Path]:
        """The files of all tables that were used so far."""
        return [path for table in self._tables.values() for path in table.files]

    # -- runs ----------------------------------------------------------------------------------------------------------

    def run(self, run: Run, with_prediction: bool = False) -> Outcome | None:
        """Outcome of a run that ended; None if it is unknown, or if its prediction is needed and was not kept."""
        record = self._record(run.name, with_prediction)
        if record is None:
            return None
        result = {**record["result"], "machine": record.get("machine"), "prediction": record.get("prediction")}
        return Outcome(run.name, run.settings, record["result"]["status"], result)

    def _record(self, name: str, with_prediction: bool) -> dict[str, Any] | None:
        record = self.table("runs").records.get(name)
        return None if record is None or (with_prediction and "prediction" not in record) else record

    def add_runs(self, ended: Iterable[tuple[Outcome, Path]], predicted: Iterable[str] = ()) -> int:
        """Add runs that ended, each with its folder, and return how many are new.

        Args:
            ended: outcomes, of which only finished and diverged runs are added.
            predicted: names of the runs whose predicted solution is kept.
        """
        names, records = set(predicted), {}
        for found, folder in ended:
            if not found.final or self._record(found.name, found.name in names) is not None:
                continue
            assert found.result is not None
            path = folder / "environment.json"
            result = {key: found.result.get(key) for key in _KEPT}
            record = {"settings": compact(found.settings), "result": result}
            record["result"]["curve"] = found.result.get("curve") or error_curve(folder) or None
            here = file_formats.read_json(path, dict) if path.exists() else found.result.get("environment")
            record["machine"] = self._machine(here)
            if found.name in names and (folder / PREDICTION).exists():
                arrays = file_formats.read_arrays(folder / PREDICTION)
                record["prediction"] = {key: arrays[key].astype("float32") for key in _PREDICTED}
            records[found.name] = record
        if records:
            self.table("runs").update(records)
            self._write_machines()
        return len(records)

    def import_runs(self, folder: Path, predicted: Iterable[str] = ()) -> int:
        """Add the finished runs among the run folders in a folder, and return how many are new."""
        paths = [path for path in sorted(folder.glob("*/")) if (path / RESULT).exists() and (path / CONFIG).exists()]
        runs = [(named(stored_settings(path)), path) for path in paths]
        return self.add_runs(((outcome(run, path), path) for run, path in runs), predicted)

    def score_by_suite(self, folders: Iterable[Path], data: Mapping[str, SuiteData]) -> int:
        """Score the networks of known runs, in their folders, at the suite's nodes; return how many are new."""
        names = {named(stored_settings(path)).name: path for path in folders if (path / CONFIG).exists()}
        known = self.table("runs").records
        ours = {name: path for name, path in names.items() if name in known}
        found = dict(missing_scores(ours, self.table(suite_scores.TABLE).records, data))
        if found:
            self.table(suite_scores.TABLE).update(found)
        return len(found)

    def suite_scores(self, name: str) -> Mapping[str, Any] | None:
        """Return the scores of a run at the suite's nodes; None if its network was not scored there."""
        record = self.table(suite_scores.TABLE).records.get(name)
        return None if record is None else record["result"]

    # -- measurements --------------------------------------------------------------------------------------------------

    def measured(self, measurement: Measurement) -> Mapping[str, Any] | None:
        """Result of a measurement; None if it is unknown, or failed and deserves another attempt."""
        record = self.table(measurement.table).records.get(measurement.key)
        return None if record is None or record["result"]["status"] == "failed" else record["result"]

    def add_measurement(self, measurement: Measurement, result: Mapping[str, Any]) -> None:
        """Add a result that was measured on this machine."""
        machine = self._machine(environment(0))
        record = {"arguments": measurement.arguments, "result": result, "machine": machine}
        self.table(measurement.table).update({measurement.key: record})
        self._write_machines()

    # -- machines ------------------------------------------------------------------------------------------------------

    @cached_property
    def machines(self) -> dict[str, dict[str, Any]]:
        """Machine and versions by identifier."""
        path = self.folder / _MACHINES
        return file_formats.read_json(path, dict) if path.exists() else {}

    def machine_of(self, measurement: Measurement) -> str | None:
        """Identifier of the machine that a measurement was made on."""
        return self.table(measurement.table).records.get(measurement.key, {}).get("machine")

    def _machine(self, here: Mapping[str, Any] | None) -> str | None:
        if not here:
            return None
        kept = {key: value for key, value in here.items() if key not in ("seed", "threads")}
        # With a letter in front, so that no identifier reads as a number.
        name = f"m{digest(json.dumps(kept, sort_keys=True).encode())[:7]}"
        self.machines[name] = kept
        return name

    def _write_machines(self) -> None:
        if self.machines:
            ordered = dict(sorted(self.machines.items()))
            write_files(self.folder, {_MACHINES: (json.dumps(ordered, indent=1) + "\n").encode()})


def compact(settings: Settings) -> dict[str, Any]:
    """Settings of a run that are not defaults, and always those that results are compared by."""
    every = settings.model_dump(exclude_none=True)
    return {key: every[key] for key in COMPARED_BY} | settings.model_dump(exclude_defaults=True)


def error_curve(folder: Path) -> list[list[float]]:
    """CPU seconds (NaN if not recorded), steps and relative L2 error at every evaluation of a run."""
    rows: Sequence[Mapping[str, str]] = read_metrics(folder) if (folder / METRICS).exists() else []
    return [
        [float(row.get("cpu_seconds") or "nan"), float(row["epoch"]), float(row["l2_relative"])]
        for row in rows
        if row["l2_relative"]
    ]
