"""Base class of isolated networks, which `isolate` and `frozen` return."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dudx.errors import InputError, percent
from dudx.network.batch_bound import Pointwise, identity, unbound
from dudx.network.model_checks import Model
from dudx.network.modules import type_name


@dataclass(frozen=True)
class Bound:
    """Rebuild an isolated network from the model and the tensors it holds; equal for equal functions of these."""

    kind: type[Isolated]
    update_statistics: bool
    options: tuple[Any, ...] = ()
    #: True if only some samples are taken; and the function that binds the network's own data.
    some: bool = False
    network: Callable[..., Any] = identity

    def __call__(self, model: Any, context: Tensor, *tensors: Tensor) -> Isolated:
        places, held = (tensors[0], tensors[1:]) if self.some else (None, tensors)
        return self.kind(self.network(model, *held), context, self.update_statistics, places, *self.options)


class Isolated(Pointwise, ABC):
    """A callable from (k·B, d) to (k·B, m), row j belonging to sample j mod B, in which no row depends on another.

    Args:
        model: the network.
        context: the batch, (B, d).
        update_statistics: if True, running statistics are updated from the context, once per call.
        places: indices of the samples that rows belong to; None means all of them, in order.

    Example:
        >>> x = torch.rand(10, 1, dtype=torch.float64)
        >>> isolated = dudx.isolate(lambda x: x - x.mean(0), x)
        >>> isolated(x.repeat(3, 1)).shape  # blocks of rows, as stencils have them
        torch.Size([30, 1])
    """

    #: Description of how the network is evaluated.
    method: str

    def __init__(self, model: Model, context: Tensor, update_statistics: bool, places: Tensor | None = None):
        self.model, self.context, self.places = model, context, places
        self.update_statistics = update_statistics
        #: Missing part of an output's change when its sample moves, relative to the change; 0 if exact.
        self.error = 0.0

    @abstractmethod
    def __call__(self, x: Any) -> Any:
        """Return the output at the query rows, a tensor or a jet."""

    def _options(self) -> tuple[Any, ...]:
        """Further constructor arguments."""
        return ()

    def at(self, samples: Tensor | Sequence[int] | slice) -> Isolated:
        """Return the function for some of the samples only: it takes their rows, and the context stays whole.

        With it a large batch can be taken slice by slice, in the memory of one slice.
        """
        numbers = torch.arange(len(self.context), device=self.context.device)
        numbers = numbers if self.places is None else self.places
        if not isinstance(samples, slice | Tensor):
            samples = torch.tensor(samples, dtype=torch.long, device=numbers.device)
        chosen = numbers[samples]
        if chosen.ndim != 1 or len(chosen) == 0:
            raise InputError("Samples are chosen by a slice or by a list of their numbers, with at least one in it.")
        some = type(self)(self.model, self.context, self.update_statistics, chosen, *self._options())
        some.error = self.error
        return some

    def unbound(self) -> tuple[Model, tuple[Tensor, ...], Bound]:
        network, held, bind = unbound(self.model)
        tensors = (self.context,) if self.places is None else (self.context, self.places)
        bound = Bound(type(self), self.update_statistics, self._options(), self.places is not None, bind)
        return network, (*tensors, *held), bound

    @property
    def samples(self) -> int:
        return len(self.context) if self.places is None else len(self.places)

    def whole(self, count: int) -> None:
        """Raise InputError unless `count` is a multiple of the number of samples."""
        if count % self.samples:
            raise InputError(
                f"An isolated network has {self.samples} samples, so it takes {self.samples} rows or a multiple; "
                f"got {count}."
            )

    def __repr__(self) -> str:
        of = "" if self.places is None else f"{self.samples} of "
        about = f", about {percent(self.error)} left out" if self.error else ""
        return f"<{type_name(self.model)} seen by {of}{len(self.context)} samples: {self.method}{about}>"
