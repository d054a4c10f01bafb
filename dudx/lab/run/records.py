"""The files that a run writes: the table of numbers, the calibrations, the prediction and the result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

from dudx.errors import percent
from dudx.lab import file_formats
from dudx.lab.atomic_files import digest, seal, sealed
from dudx.lab.run.checkpoint import FILE as CHECKPOINT
from dudx.lab.run.phases import StepReport
from dudx.lab.run.settings import Settings

METRICS, CALIBRATIONS, RESULT, PREDICTION = "metrics.csv", "calibrations.json", "result.json", "prediction.npz"
#: The trained networks, written when the run ends.
TRAINED = "trained.pt"
#: Files written before the first epoch.
CONFIG, ENVIRONMENT = STARTED_WITH = "config.toml", "environment.json"
SCORES = ("l2_relative", "smape", "max_error")
#: Settings repeated in the result, so that it can be read by itself.
_CHOSEN = ("problem", "engine", "seed", "optimizer", "initialisation", "boundary_mean", "boundary_batch")
#: Number of calibration curves stored whole; of later ones only the best step is stored. Otherwise a long run that
#: calibrates every epoch would write hundreds of megabytes.
_WHOLE_CURVES = 400


class Records:
    """The numbers of a run, in memory and in its folder.

    Args:
        folder: the run's folder; it need not exist before `begin`.
        settings: the settings of the run.
        parts: the names of the parts of the loss.
        unknowns: the unknown constants of an inverse problem.
        damped: whether the optimizer has a damping.
    """

    def __init__(
        self,
        folder: Path,
        settings: Settings,
        parts: Sequence[str],
        unknowns: nn.ParameterDict,
        damped: bool = False,
    ):
        self.folder, self.settings, self._unknowns = folder, settings, unknowns
        self.losses: tuple[str, ...] = ("loss", *parts)
        #: Further columns of the table, to be set before `begin`.
        self.more: tuple[str, ...] = ()
        #: Epochs of earlier trainers that wrote to these records.
        self.offset = 0
        #: The latest value of each loss and score.
        self.recent: dict[str, float] = {}
        self.calibrations: list[dict[str, Any]] = []
        #: State of the table in the checkpoint that the run resumes from.
        self._seen: Mapping[str, Any] | None = None
        self._table: file_formats.GrowingTable | None = None
        self._damped = damped

    def begin(self) -> None:
        """Open the table, truncated to the rows that the checkpoint knows, and remove an earlier result."""
        (self.folder / RESULT).unlink(missing_ok=True)
        seal(self.folder, STARTED_WITH)
        columns = ["epoch", *self.losses, "learning_rate", *["damping"] * self._damped, "step", *SCORES, "seconds"]
        # Without a limit in seconds the table must not depend on the machine.
        columns += ["cpu_seconds"] * (self.settings.seconds is not None) + list(self._unknowns) + list(self.more)
        self._table = file_formats.GrowingTable(self.folder / METRICS, columns, self._seen)

    @property
    def unknowns(self) -> dict[str, float]:
        """The present values of the unknown constants."""
        return {name: float(value.detach()) for name, value in self._unknowns.items()}

    def add_losses(self, loss: float, by_name: Mapping[str, Tensor]) -> None:
        """Store the latest loss and its parts."""
        self.recent |= {"loss": loss, **{name: float(value) for name, value in by_name.items()}}

    def add_row(
        self,
        epoch: int,
        seconds: float,
        report: StepReport,
        scores: Mapping[str, float],
        cpu_seconds: float = 0.0,
        **more: float | str | None,
    ) -> None:
        """Write a row: the latest losses, the scores if there are new ones, and the columns `more`."""
        self.recent |= scores
        losses = {name: self.recent.get(name) for name in self.losses}
        damping = {"damping": report.damping} if self._damped else {}
        found = {**losses, **scores, **self.unknowns, **damping, **more}
        fixed = {
            "epoch": epoch, "learning_rate": report.learning_rate, "step": report.step, "seconds": round(seconds, 3),
        }  # fmt: skip
        if self.settings.seconds is not None:
            fixed["cpu_seconds"] = round(cpu_seconds, 3)
        assert self._table is not None
        self._table.append({**fixed, **found})

    def add_calibrations(self, epoch: int, calibrations: Mapping[int, Any]) -> None:
        """Store the calibrations that set an engine's steps, by derivative order."""
        for order, found in calibrations.items():
            curve = {"steps": found.steps, "rmse": found.rmse, "max_error": found.max_error}
            if len(self.calibrations) >= _WHOLE_CURVES:
                at = int(np.argmin(found.rmse))
                curve = {name: values[at : at + 1] for name, values in curve.items()}
            lists = {name: values.tolist() for name, values in curve.items()}
            self.calibrations.append({"epoch": self.offset + epoch, "order": order, "step": found.step, **lists})

    def facts(self, step: str) -> dict[str, str]:
        """Return the numbers that the progress display shows."""
        shown = {name: f"{self.recent[name]:.1e}" for name in self.losses if name in self.recent}
        if "l2_relative" in self.recent:
            shown["L2"] = percent(self.recent["l2_relative"])
        if step:
            shown["step"] = step
        return shown | {name: f"{value:.5g}" for name, value in self.unknowns.items()}

    def write_result(
        self, scores: Mapping[str, float], arrays: Mapping[str, np.ndarray], facts: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Write the prediction and the result; return the result."""
        if arrays:
            single = {name: values.astype(np.float32) for name, values in arrays.items()}
            file_formats.write_arrays(self.folder / PREDICTION, **single)
        repeated = {key: getattr(self.settings, key) for key in _CHOSEN}
        result = {**repeated, **dict.fromkeys(SCORES), **scores, "loss": self.recent.get("loss"), **facts}
        result["calibrations"] = len(self.calibrations)
        if self._unknowns:
            result["unknowns"] = self.unknowns
        self._write_sealed(result)
        return result

    def _write_sealed(self, result: Mapping[str, Any]) -> None:
        """Write the result, and the checksums of all files that belong to it."""
        content = file_formats.json_text(result).encode()
        # The checksums first: a result never exists without them.
        seal(self.folder, (*STARTED_WITH, METRICS, CALIBRATIONS, PREDICTION, TRAINED), coming={RESULT: content})
        file_formats.write_bytes(self.folder / RESULT, content)

    # -- for a checkpoint ----------------------------------------------------------------------------------------

    def write_calibrations(self) -> None:
        """Write the calibration curves, before a checkpoint refers to them."""
        file_formats.write_text(self.folder / CALIBRATIONS, file_formats.json_text(self.calibrations))

    def state_dict(self) -> dict[str, Any]:
        """Return the lengths and checksums of the other files, and the latest losses."""
        sum_ = digest(file_formats.json_text(self.calibrations).encode())
        table = {"rows": 0} if self._table is None else self._table.state
        curves = {"calibrations": len(self.calibrations), "calibrations_sha256": sum_}
        return {"table": table, "recent": dict(self.recent), **curves}

    def load_state_dict(self, state: Mapping[str, Any], /) -> None:
        seen = self._seen = state.get("table") or {"rows": state["rows"]}  # older checkpoints have only the rows
        if not all(type(count) is int and count >= 0 for count in (seen["rows"], state["calibrations"])):
            raise TypeError("records.rows should be a number")
        if not all(isinstance(value, float) for value in state["recent"].values()):
            raise TypeError("records.recent should be numbers")
        self.recent, self.calibrations = dict(state["recent"]), read_calibrations(self.folder, state)


def read_result(folder: Path) -> dict[str, Any]:
    """Read the result of a run."""
    number = float | int | None
    fields = {"status": str, "epochs": int, "seconds": number, **dict.fromkeys(SCORES, number)}
    found = file_formats.read_json(folder / RESULT, dict, fields)
    if found["status"] not in ("finished", "diverged", "interrupted"):
        raise file_formats.DamagedError(f"{str(folder / RESULT)!r} is damaged: its status is {found['status']!r}.")
    return found


def read_metrics(folder: Path) -> list[dict[str, str]]:
    """Read the rows of a run's table; if the run has not ended, check them against its checkpoint."""
    path = folder / METRICS
    known = _known(folder, path)
    if known is not None:
        file_formats.refuse_changed(path, known["table"])
    return file_formats.read_table(path)


def _known(folder: Path, path: Path) -> Mapping[str, Any] | None:
    """Return the checkpoint's record of a file that has no checksum yet; None if there is none."""
    if sealed(path) or not (folder / CHECKPOINT).exists():
        return None
    known = file_formats.read_checkpoint(folder / CHECKPOINT).get("records")
    # Older checkpoints have no record of the other files, or only their lengths.
    return known if isinstance(known, Mapping) and isinstance(known.get("table"), Mapping) else None


#: Fields of an entry of the calibrations file.
_SEARCH = {"epoch": int, "order": int, "step": float, "steps": list[float], "rmse": list[float]}


def read_calibrations(folder: Path, seen: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
    """Read the calibrations of a run: all, or those that a checkpoint knows, given its record of them."""
    if seen is not None and not seen["calibrations"]:
        return []
    path = folder / CALIBRATIONS
    if seen is None and (known := _known(folder, path)) is not None:
        read_calibrations(folder, known)
    found = file_formats.read_json(path, list, {**_SEARCH, "max_error": list[float]})
    for search in found:
        if not search["steps"] or not len(search["steps"]) == len(search["rmse"]) == len(search["max_error"]):
            raise file_formats.DamagedError(
                f"{str(path)!r} is damaged: a curve has different numbers of steps and errors."
            )
    if seen is None:
        return found
    found = found[: seen["calibrations"]]
    expected = seen.get("calibrations_sha256")
    if len(found) < seen["calibrations"] or expected not in (None, digest(file_formats.json_text(found).encode())):
        raise file_formats.DamagedError(
            f"{str(path)!r} is damaged: it is not what the checkpoint has seen; take it from a copy, or start again in "
            "another folder."
        )
    return found
