"""Base classes of models that are bound to the tensors of one batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor


class BatchBound:
    """Base class of temporary models: a network and tensors that belong to one batch."""

    #: Why the model cannot be compiled; None if it can.
    not_compiled: str | None = None

    @property
    def samples(self) -> int:
        """Number of samples that rows belong to: the model takes this number of rows, or a multiple."""
        return 1

    def unbound(self) -> tuple[Any, tuple[Tensor, ...], Callable[..., Any]]:
        """Return the network, the tensors bound to it, and a function that binds them again.

        Compiled graphs belong to the network, which persists; the tensors of the batch are passed as data.
        """
        return self, (), identity


class Pointwise(BatchBound):
    """Base class of models whose rows are independent by construction, so that engines need not probe them."""


def samples_of(model: object) -> int:
    """Number of samples that the rows of a batch belong to; 1 for a plain network."""
    return model.samples if isinstance(model, BatchBound) else 1


def unbound(model: Any) -> tuple[Any, tuple[Tensor, ...], Callable[..., Any]]:
    """Return a network, the tensors bound to it, and a function that binds them again."""
    return model.unbound() if isinstance(model, BatchBound) else (model, (), identity)


def identity(model: Any) -> Any:
    """Return the model: the bind function of a network without bound tensors."""
    return model
