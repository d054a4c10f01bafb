"""Models that take each row of a batch by itself, and say so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor


class Pointwise:
    """The base of models that are known to take each row by itself, so that engines need not probe them."""

    #: Why it cannot be compiled, for those who would.
    not_compiled: str | None = None

    @property
    def samples(self) -> int:
        """How many samples the rows of a batch belong to: it takes so many rows, or a multiple."""
        return 1

    def first(self, count: int) -> Pointwise:
        """The same for a batch of the first samples alone, at most so many: it takes their rows."""
        return self

    def unbound(self) -> tuple[Any, tuple[Tensor, ...], Callable[..., Any]]:
        """The network inside, the tensors held for the moment, and how to put them together again.

        What is made anew for every batch has its compiled graph with the network inside, and the batch is data.
        """
        return self, (), itself


def itself(model: Any) -> Any:
    """A network that holds no tensors of a moment, put together."""
    return model
