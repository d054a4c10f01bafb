"""The training loop of a run: steps, checkpoints, the table of numbers, and the reasons to stop."""

from __future__ import annotations

import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from dudx.lab.run.checkpoint import Checkpoint
from dudx.lab.run.interruption import stop_request
from dudx.lab.run.phases import DivergedError, StepReport
from dudx.lab.run.records import Records
from dudx.lab.run.run_progress import display
from dudx.lab.run.settings import Settings
from dudx.lab.run.stopping import Stopping


class Loop(ABC):
    """A run in its folder. Subclasses define what one epoch does and what the result holds."""

    settings: Settings
    records: Records
    checkpoint: Checkpoint
    #: Called after each checkpoint is written.
    saved: Callable[[], None] | None = None
    stopping: Stopping
    #: The name of the run in the progress display.
    title: str
    #: Whether to show no progress at all.
    quiet: bool = False
    #: Returns True once the caller, who handles signals then, wants the run to stop.
    stop: Callable[[], bool] | None = None
    #: The largest number of epochs, and the number completed.
    epochs: int
    epoch: int = 0
    seconds: float = 0.0

    @abstractmethod
    def _epoch(self) -> None:
        """Do one epoch, ending with `_note`."""

    @abstractmethod
    def _facts(self) -> dict[str, str]:
        """Return the numbers that the progress display shows."""

    @abstractmethod
    def _scores(self) -> Mapping[str, float]:
        """Score the present network against the reference solution."""

    @abstractmethod
    def _result(self, status: str, reached: int, stopped: str) -> dict[str, Any]:
        """Write and return the result of the run."""

    def save(self) -> None:
        """Write a checkpoint and call `saved`."""
        self.records.write_calibrations()
        self.checkpoint.save()
        if self.saved is not None:
            self.saved()

    def run(self) -> dict[str, Any]:
        """Train until a reason to stop occurs; a run that is interrupted or diverges leaves a usable folder."""
        self.records.begin()
        if self.epoch == 0:
            self.save()
        self.began = time.perf_counter() - self.seconds
        status, stopped = "finished", self._over
        try:
            handled = stop_request(self.quiet) if self.stop is None else contextlib.nullcontext(self.stop)
            with handled as stop, display(self.title, *self._extent(), quiet=self.quiet) as shown:
                while self.epoch < self.epochs and status == "finished" and stopped is None:
                    self._epoch()
                    stopped = self._over
                    over = stopped is not None or self.epoch == self.epochs
                    shown.update(self._extent()[2], self._facts(), over)
                    if stop():
                        status = "interrupted"
                        self.save()
                    elif self.epoch % self.settings.checkpoint_every == 0:
                        self.save()
        except DivergedError:
            status = "diverged"
        reached = self.epoch
        if status == "finished":
            self.save()
        elif status == "diverged":  # the last saved network is the one to examine
            self.checkpoint.load()
        return self._result(status, reached, stopped or "epochs")

    def _extent(self) -> tuple[str, float, float]:
        """Return the unit of the progress, its total, and the amount done."""
        limit = self.settings.seconds
        return ("epoch", self.epochs, self.epoch) if limit is None else ("CPU second", limit, self.stopping.spent)

    @property
    def _over(self) -> str | None:
        """The reason to stop now, or None. Never before the last step with the present points: the first step errs."""
        return self.stopping.reason if self.epoch % self.settings.resample == 0 else None

    def _note(self, began: float, report: StepReport) -> None:
        """Count an epoch that began at a process time, and log it where that is due."""
        self._count(began)
        last = self.epoch == self.epochs or self._over is not None
        self._log(report, evaluating=self.epoch % self.settings.evaluate_every == 0 or last)

    def _count(self, began: float) -> None:
        """Count an epoch that began at a process time."""
        self.epoch += 1
        self.seconds = time.perf_counter() - self.began
        self.stopping.spent += time.process_time() - began

    def _log(self, report: StepReport, evaluating: bool, **more: float | str | None) -> None:
        """Write a row of the table where it is due, with scores if evaluating and with more columns if given."""
        if evaluating or self.epoch % self.settings.log_every == 0 or self.epoch == 1:
            self.records.add_losses(report.loss, report.by_name)
            scores = self._scores() if evaluating else {}
            self.records.add_row(self.epoch, self.seconds, report, scores, self.stopping.spent, **more)

    def _ending(self, status: str, reached: int, stopped: str) -> dict[str, Any]:
        """Return the facts of a result about when and why the run ended."""
        facts: dict[str, Any] = {"epochs": self.epoch, "status": status, "seconds": self.seconds}
        # Wall time depends on the machine's load: runs with equal settings took from 15 minutes to 155.
        facts["cpu_seconds"] = self.stopping.spent
        if status == "diverged":
            facts["diverged_at"] = reached
        elif status == "finished":
            facts["stopped"] = stopped
        return facts
