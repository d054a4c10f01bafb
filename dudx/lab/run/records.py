"""What a run writes down: a line of numbers now and then, every calibration, and in the end what came of it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

from dudx.errors import InputError
from dudx.lab import storage
from dudx.lab.run.metrics import percent
from dudx.lab.run.settings import Settings

METRICS, CALIBRATIONS, RESULT, PREDICTION = "metrics.csv", "calibrations.json", "result.json", "prediction.npz"
SCORES = ("l2_relative", "smape", "max_error")
#: So many curves of calibrations are kept whole, and of further ones the best step: calibrating every epoch of a long
#: run would leave hundreds of megabytes.
_WHOLE_CURVES = 400


class Records:
    """The numbers of a run, in its folder and in hand.

    Args:
        folder: the run's folder, which need not be there before `begin`.
        settings: of the run.
        parts: the names of the parts of the loss.
        unknowns: the constants that are looked for.
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
        self.losses = ("loss", *parts)
        #: The latest value of each loss and score.
        self.recent: dict[str, float] = {}
        self.calibrations: list[dict[str, Any]] = []
        self._keep: int | None = None
        self._damped = damped
        self._make_writer = _summary_writer() if settings.tensorboard else None

    def begin(self) -> None:
        """Open the table of numbers, cut back to what the checkpoint has seen."""
        columns = ["epoch", *self.losses, "learning_rate", *["damping"] * self._damped, "step", *SCORES, "seconds"]
        # A run that is not cut short by it has no use for it, and is the same wherever it runs.
        columns += ["cpu_seconds"] * (self.settings.seconds is not None) + list(self._unknowns)
        self._table = storage.GrowingTable(self.folder / METRICS, columns, keep=self._keep)

    @property
    def unknowns(self) -> dict[str, float]:
        """The constants that are looked for, as they are now."""
        return {name: float(value.detach()) for name, value in self._unknowns.items()}

    def add_losses(self, loss: float, by_name: Mapping[str, Tensor]) -> None:
        """Take note of the latest loss and its parts."""
        self.recent |= {"loss": loss, **{name: float(value) for name, value in by_name.items()}}

    def add_row(
        self,
        epoch: int,
        seconds: float,
        learning_rate: float,
        step: str,
        scores: Mapping[str, float],
        damping: float | None = None,
        cpu_seconds: float = 0.0,
    ) -> None:
        """Write a line of the latest losses, with the scores if there are new ones."""
        self.recent |= scores
        losses = {name: self.recent.get(name) for name in self.losses}
        found = {**losses, **scores, **self.unknowns, **({"damping": damping} if self._damped else {})}
        plain = {"epoch": epoch, "learning_rate": learning_rate, "step": step, "seconds": round(seconds, 3)}
        if self.settings.seconds is not None:
            plain["cpu_seconds"] = round(cpu_seconds, 3)
        self._table.append({**plain, **found})
        if self._make_writer is not None:
            for name, value in found.items():
                if value is not None:
                    self._writer.add_scalar(name, value, epoch)
            self._writer.flush()

    @functools.cached_property
    def _writer(self) -> Any:
        """Of TensorBoard's events; made when the first are written, since it makes the folder."""
        assert self._make_writer is not None
        return self._make_writer(str(self.folder))

    def add_calibrations(self, epoch: int, calibrations: Mapping[int, Any]) -> None:
        """Take note of the searches that set an engine's steps, by derivative order."""
        for order, found in calibrations.items():
            curve = {"steps": found.steps, "rmse": found.rmse, "max_error": found.max_error}
            if len(self.calibrations) >= _WHOLE_CURVES:
                at = int(np.argmin(found.rmse))
                curve = {name: values[at : at + 1] for name, values in curve.items()}
            lists = {name: values.tolist() for name, values in curve.items()}
            self.calibrations.append({"epoch": epoch, "order": order, "step": found.step, **lists})

    def facts(self, step: str) -> dict[str, str]:
        """What a person who watches is told."""
        told = {name: f"{self.recent[name]:.1e}" for name in self.losses if name in self.recent}
        if "l2_relative" in self.recent:
            told["L2"] = percent(self.recent["l2_relative"])
        if step:
            told["step"] = step
        return told | {name: f"{value:.5g}" for name, value in self.unknowns.items()}

    def write_result(
        self, scores: Mapping[str, float], arrays: Mapping[str, np.ndarray], facts: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Write the prediction, and what came of the run, which is returned."""
        if arrays:
            single = {name: values.astype(np.float32) for name, values in arrays.items()}
            storage.write_arrays(self.folder / PREDICTION, **single)
        chosen = {key: getattr(self.settings, key) for key in ("problem", "engine", "seed", "optimizer")}
        result = {**chosen, **dict.fromkeys(SCORES), **scores, "loss": self.recent.get("loss"), **facts}
        result["calibrations"] = len(self.calibrations)
        if self._unknowns:
            result["unknowns"] = self.unknowns
        storage.write_json(self.folder / RESULT, result)
        return result

    # -- for a checkpoint ----------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps; the curves of the calibrations have a file of their own, written here."""
        storage.write_json(self.folder / CALIBRATIONS, self.calibrations)
        return {"rows": self._table.rows, "recent": dict(self.recent), "calibrations": len(self.calibrations)}

    def load_state_dict(self, state: Mapping[str, Any], /) -> None:
        count = state["calibrations"]
        recorded = storage.read_json(self.folder / CALIBRATIONS) if count else []
        self._keep, self.recent, self.calibrations = state["rows"], dict(state["recent"]), recorded[:count]


def _summary_writer() -> Callable[[str], Any]:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise InputError("TensorBoard is not installed: pip install tensorboard, or leave it off.") from error
    return SummaryWriter
