"""The loop over epochs: when to save, when to stop, and what is written down on the way."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from dudx.lab.run.checkpoint import Checkpoint
from dudx.lab.run.interruption import stop_request
from dudx.lab.run.phases import DivergedError
from dudx.lab.run.ranks import Ranks
from dudx.lab.run.records import Records
from dudx.lab.run.run_progress import display
from dudx.lab.run.settings import Settings
from dudx.lab.run.stopping import Stopping


class Loop(ABC):
    """A run in its folder; what an epoch does, and what comes of it, is up to what is trained."""

    settings: Settings
    records: Records
    checkpoint: Checkpoint
    ranks: Ranks
    #: Called whenever a checkpoint is on the disk.
    saved: Callable[[], None] | None
    stopping: Stopping
    #: How many epochs there are at most, and how many there were.
    epochs: int
    epoch: int = 0
    seconds: float = 0.0

    @abstractmethod
    def _epoch(self) -> None:
        """One epoch, which ends with `_note`."""

    @abstractmethod
    def _facts(self) -> dict[str, str]:
        """What a person who watches is told."""

    @abstractmethod
    def _scores(self) -> Mapping[str, float]:
        """The scores now."""

    @abstractmethod
    def _result(self, status: str, reached: int, stopped: str) -> dict[str, Any]:
        """Write what came of it."""

    def save(self) -> None:
        """Write the checkpoint, and tell who wants to know."""
        self.records.write_calibrations()
        self.checkpoint.save()
        if self.saved is not None:
            self.saved()

    def run(self) -> dict[str, Any]:
        """Train to the last epoch; interrupted or diverged, leave the folder so that nothing is lost."""
        self.records.begin()
        if self.epoch == 0:
            self.save()
        self.began = time.perf_counter() - self.seconds
        status, stopped = "finished", None
        try:
            with stop_request() as stop, display(self.settings.problem, *self._extent()) as shown:
                while self.epoch < self.epochs and status == "finished" and stopped is None:
                    self._epoch()
                    stopped = self.ranks.same(self._over)
                    over = stopped is not None or self.epoch == self.epochs
                    shown.update(self._extent()[2], self._facts(), over)
                    if self.ranks.any(stop()):
                        status = "interrupted"
                        self.save()
                    elif self.epoch % self.settings.checkpoint_every == 0:
                        self.save()
        except DivergedError:
            status = "diverged"
        reached = self.epoch
        if status == "finished":
            self.save()
        elif status == "diverged":  # what is left to look at is the last network that was saved
            self.checkpoint.load()
        return self._result(status, reached, stopped or "epochs")

    def _extent(self) -> tuple[str, float, float]:
        """What the progress is counted in, how much of it there is, and how much is done."""
        limit = self.settings.seconds
        return ("epoch", self.epochs, self.epoch) if limit is None else ("second", limit, self.stopping.spent)

    @property
    def _over(self) -> str | None:
        """Why to stop now; not before the last step with the present points, as the first one with new points errs."""
        return self.stopping.reason if self.epoch % self.settings.resample == 0 else None

    def _note(
        self,
        began: float,
        loss: float,
        by_name: Mapping[str, Tensor],
        learning_rate: float,
        step: str = "",
        damping: float | None = None,
    ) -> None:
        """Count an epoch that began at this process time, and write it down where that is due."""
        self.epoch += 1
        self.seconds = time.perf_counter() - self.began
        self.stopping.spent += time.process_time() - began
        last = self.epoch == self.epochs or self._over is not None
        evaluating = self.epoch % self.settings.evaluate_every == 0 or last
        if evaluating or self.epoch % self.settings.log_every == 0 or self.epoch == 1:
            self.records.add_losses(loss, by_name)
            scores = self._scores() if evaluating else {}
            self.records.add_row(self.epoch, self.seconds, learning_rate, step, scores, damping, self.stopping.spent)

    def _ending(self, status: str, reached: int, stopped: str) -> dict[str, Any]:
        """The facts of a result that have to do with when and why it ended."""
        facts: dict[str, Any] = {"epochs": self.epoch, "status": status, "seconds": self.seconds}
        # Wall time depends on what else the machine does: runs with equal settings took from 15 minutes to 155.
        facts["cpu_seconds"] = self.stopping.spent
        if status == "diverged":
            facts["diverged_at"] = reached
        elif status == "finished":
            facts["stopped"] = stopped
        return facts
