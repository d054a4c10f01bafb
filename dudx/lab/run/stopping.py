"""When a run has done enough."""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Mapping
from typing import Any

#: A median that has fallen to no less than this share of the one before has settled.
_SHARE = 0.9


class Stopping:
    """Watches the loss on fresh points, which no step has seen yet, and the CPU time.

    Args:
        draws: the run stops when the median loss over so many draws is hardly below that of as many before; 0 does not
            look at it.
        seconds: the run stops after so many CPU seconds of training; None does not count them.
    """

    def __init__(self, draws: int, seconds: float | None):
        self.draws, self.limit = draws, seconds
        #: CPU seconds spent so far.
        self.spent = 0.0
        self._fresh: deque[float] = deque(maxlen=2 * draws)

    def add(self, fresh_loss: float) -> None:
        """Take note of the loss on points just drawn."""
        self._fresh.append(fresh_loss)

    @property
    def reason(self) -> str | None:
        """Why to stop now; None goes on."""
        if self.limit is not None and self.spent >= self.limit:
            return "seconds"
        if self.draws and len(self._fresh) == 2 * self.draws:
            before, after = list(self._fresh)[: self.draws], list(self._fresh)[self.draws :]
            if statistics.median(after) >= _SHARE * statistics.median(before):
                return "settled"
        return None

    def state_dict(self) -> dict[str, Any]:
        return {"spent": self.spent, "fresh": list(self._fresh)}

    def load_state_dict(self, state: Mapping[str, Any], /) -> None:
        self.spent = state["spent"]
        self._fresh = deque(state["fresh"], maxlen=self._fresh.maxlen)
