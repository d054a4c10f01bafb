"""Error estimates of a network in training whose cost is known and fits a budget of CPU seconds."""

from __future__ import annotations

import math
import time

import torch

from dudx.lab.run.error_estimate import Estimate, estimate
from dudx.lab.run.trainer import Trainer

#: Search directions of an estimate: to learn its cost, during training, and at the end.
PROBE, QUICK, CAREFUL = 100, 400, 1500
#: The cost of an estimate grows with this power of the number of directions.
_POWER = 1.8
#: The last estimate may take this share of the budget.
_LAST = 0.15


class BudgetedEstimates:
    """Estimates the error of networks in training, and predicts the CPU seconds of the next estimate.

    Args:
        budget: CPU seconds of the whole run.
        enough: an error that a quick estimate finds below this is estimated carefully at once.
    """

    def __init__(self, budget: float = math.inf, enough: float = 0.0):
        self.budget, self.enough = budget, enough
        #: CPU seconds of a quick estimate; 0 before the first estimate.
        self.quick_seconds = 0.0

    def __call__(self, trainer: Trainer, directions: int) -> Estimate:
        """Estimate the error among so many search directions; the training after it does not change."""
        began, state = time.process_time(), trainer.engine_generator.get_state()
        with torch.random.fork_rng([trainer.device] if trainer.device.type == "cuda" else []):
            seed = trainer.settings.seed
            found = estimate(trainer.problem, trainer.model, trainer.engine, directions=directions, seed=seed)
        trainer.engine_generator.set_state(state)
        self.quick_seconds = (time.process_time() - began) * (QUICK / directions) ** _POWER
        return found

    @staticmethod
    def possible(trainer: Trainer) -> bool:
        """Return True if errors are to be estimated, and the network's samples do not influence each other."""
        return trainer.settings.estimate and not trainer.views.isolating

    def assessed(self, trainer: Trainer, window: bool, last: bool) -> Estimate | None:
        """Estimate the error: quickly on the way and of windows, carefully before the run ends."""
        if not self.possible(trainer):
            return None
        if window or not last:
            found = self(trainer, QUICK)
            if window or found.relative_l2 >= self.enough:
                return found
        return self(trainer, self.careful)

    def seconds(self, directions: int) -> float:
        """Predict the CPU seconds of an estimate."""
        return self.quick_seconds * (directions / QUICK) ** _POWER

    @property
    def careful(self) -> int:
        """The number of directions of the last estimate: many, if the budget allows them."""
        if not self.quick_seconds:
            return PROBE
        return max(PROBE, min(CAREFUL, int(QUICK * (_LAST * self.budget / self.quick_seconds) ** (1 / _POWER))))
