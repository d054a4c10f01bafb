"""One network of a staged run: the time it covers, its budget, and whether its training is lost."""

from __future__ import annotations

import math
from dataclasses import dataclass

#: The error is estimated after these shares of a network's budget; training is lost with an error above the second
#: number.
CHECKS = ((1 / 8, 0.3), (1 / 4, 0.03), (1 / 2, 0.03))
#: With fewer steps than this, training is lost only if the error has not halved since the last estimate.
FIRST_STEPS = 100


@dataclass
class Stage:
    """A network in training.

    Attributes:
        number: 0 for the network of the whole domain, 1 for the first window of time.
        start, end: the window; both 0 for the whole domain.
        began: CPU seconds of the run when the stage began.
        budget: CPU seconds for the stage, estimates included.
        checks: the number of scheduled estimates done.
        error: the latest estimate; inf before the first one.
    """

    number: int
    start: float
    end: float
    began: float
    budget: float
    checks: int = 0
    error: float = math.inf

    @property
    def length(self) -> float:
        return self.end - self.start

    def check(self, share: float) -> float | None:
        """Return the error above which training is lost if an estimate is due after a share of the budget."""
        found = None
        while self.checks < len(CHECKS) and share >= CHECKS[self.checks][0]:
            found = CHECKS[self.checks][1]
            self.checks += 1
        return found

    def is_lost(self, error: float, steps: int, above: float | None = None) -> bool:
        """Return True if training is lost by a new estimate; `above` is the threshold of a check, if it was one."""
        stuck = steps >= FIRST_STEPS or error > self.error / 2
        return stuck and error > (CHECKS[-1][1] if above is None else above)
