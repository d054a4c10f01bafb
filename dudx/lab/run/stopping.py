"""Criteria that end a run: a settled loss, or a limit in CPU seconds."""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Mapping
from typing import Any

#: The loss has settled if its median has not fallen below this share of the median before.
_SHARE = 0.9


class Stopping:
    """Watches the loss on new points, and the CPU seconds.

    Args:
        draws: the run stops when the median loss over so many draws is hardly below that of as many before; 0 never.
        seconds: the run stops after so many CPU seconds of training; None for no limit.
    """

    def __init__(self, draws: int, seconds: float | None):
        self.draws, self.limit = draws, seconds
        #: CPU seconds so far.
        self.spent = 0.0
        self._fresh: deque[float] = deque(maxlen=2 * draws)

    def add(self, fresh_loss: float) -> None:
        """Store the loss on new points."""
        self._fresh.append(fresh_loss)

    @property
    def reason(self) -> str | None:
        """The reason to stop now, or None."""
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
