"""Models that hold tensors for the moment, and among them those that take each row of a batch by itself and say so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor


class BatchBound:
    """The base of models made for the moment, of a network and tensors that belong to one batch."""

    #: Why it cannot be compiled, for those who would.
    not_compiled: str | None = None

    @property
    def samples(self) -> int:
        """How many samples the rows of a batch belong to: it takes so many rows, or a multiple."""
        return 1

    @property
    def is_one_function(self) -> bool:
        """Whether rows are values of one function, whichever samples they belong to."""
        return self.samples == 1

    def unbound(self) -> tuple[Any, tuple[Tensor, ...], Callable[..., Any]]:
        """The network inside, the tensors held for the moment, and how to put them together again.

        What is made anew for every batch has its compiled graph with the network inside, and the batch is data.
        """
        return self, (), identity


class Pointwise(BatchBound):
    """The base of models that are known to take each row by itself, so that engines need not probe them."""


def samples_of(model: object) -> int:
    """How many samples the rows of a batch belong to; a model of several takes them all, in order."""
    return model.samples if isinstance(model, BatchBound) else 1


def is_one_function(model: object) -> bool:
    """Whether a model's values at all points are those of one function."""
    return not isinstance(model, BatchBound) or model.is_one_function


def unbound(model: Any) -> tuple[Any, tuple[Tensor, ...], Callable[..., Any]]:
    """A network apart from the tensors it holds for the moment, and how to put them together again."""
    return model.unbound() if isinstance(model, BatchBound) else (model, (), identity)


def identity(model: Any) -> Any:
    """A network that holds no tensors of a moment, put together."""
    return model
