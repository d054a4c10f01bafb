"""What `isolate` and `frozen` return, and the way all queries pass together, after the context."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dudx.checks import Model
from dudx.coupling.rows import Mode, Record, Recording, Rows
from dudx.errors import InputError
from dudx.kernels import slow_attention
from dudx.network.detect import Pointwise
from dudx.network.sandbox import untracked_statistics


class Isolated(Pointwise, ABC):
    """A callable from (k·B, d) to (k·B, m), row j belonging to sample j mod B, in which no row depends on another.

    Args:
        model: the network.
        context: the batch, (B, d).
        update_statistics: whether running statistics follow the context, once a call.
        places: the samples that rows belong to; None means all of them, in order.
    """

    def __init__(self, model: Model, context: Tensor, update_statistics: bool, places: Tensor | None = None):
        self.model, self.context, self.places = model, context, places
        self.update_statistics = update_statistics

    @abstractmethod
    def __call__(self, x: Any) -> Any:
        """The output at the query rows, a tensor or a jet."""

    @property
    @abstractmethod
    def bind(self) -> Callable[..., Isolated]:
        """What this was made by, apart from the model and the tensors it holds: equal for equal functions of these."""

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The tensors it holds, of which `bind(model, *tensors)` makes it again."""
        return (self.context,) if self.places is None else (self.context, self.places)

    def at(self, samples: Tensor | Sequence[int] | slice) -> Isolated:
        """The same function for some of the samples only: it takes their rows, and the context stays whole.

        With it a large batch can be taken slice by slice, in the memory of one slice.
        """
        numbers = torch.arange(len(self.context), device=self.context.device)
        numbers = numbers if self.places is None else self.places
        chosen = numbers[samples if isinstance(samples, slice | Tensor) else torch.tensor(samples, dtype=torch.long)]
        if chosen.ndim != 1 or len(chosen) == 0:
            raise InputError("Samples are chosen by a slice or by a list of their numbers, with at least one in it.")
        return self.bind(self.model, self.context, chosen)

    def unbound(self) -> tuple[Any, tuple[Tensor, ...], Callable[..., Any]]:
        return self.model, self.tensors, self.bind

    @property
    def samples(self) -> int:
        return len(self.context) if self.places is None else len(self.places)

    def whole(self, count: int) -> None:
        """Refuse a number of rows that is not so many for each sample."""
        if count % self.samples:
            raise InputError(
                f"An isolated network has {self.samples} samples, so it takes {self.samples} rows or a multiple; "
                f"got {count}."
            )


class Together(Isolated):
    """The context passes by itself, then all queries in one batch, in which functions that mix rows follow rules.

    A rule finds what its function saw of the context. So nothing that belongs to the context depends on a query, and
    derivatives along queries cost what they do in a network of their size.

    Args:
        model: the network.
        context: the batch, (B, d).
        update_statistics: whether running statistics follow the context, once a call.
        places: the samples that rows belong to; None means all of them, in order.
        replace: whether a query takes the place of its sample in the context, or the context stays as it is.
    """

    def __init__(
        self,
        model: Model,
        context: Tensor,
        update_statistics: bool,
        places: Tensor | None = None,
        replace: bool = True,
    ):
        super().__init__(model, context, update_statistics, places)
        self.replace = replace

    def __call__(self, x: Any) -> Any:
        return self.under(x, Mode)

    def under(self, x: Any, mode: Callable[[Rows, list[Record]], Mode], moved: bool = False) -> Any:
        """The output at the query rows, blocks of which, as stencils have them, pass together."""
        size, count = len(self.context), x.shape[0]
        places = self.places
        if self.replace:
            self.whole(count)
        elif count % self.samples:  # nobody's place is taken, so any number will do
            number = torch.arange(count, device=self.context.device) % self.samples
            places = number if places is None else places[number]
        with contextlib.ExitStack() as stack:
            if not torch.compiler.is_compiling():  # which has no such kernels
                stack.enter_context(slow_attention())
            recording = self._recorded()
            stack.enter_context(untracked_statistics(self.model))
            rows = Rows(size, count, places, self.replace, moved)
            if count == size and recording.ambiguous():
                # With one row more, which nobody looks at, an axis that counts rows is no longer as long as before.
                owners = rows.owners(self.context.device)
                rows = Rows(size, count + 1, torch.cat([owners, owners[:1]]), self.replace, moved)
                x = torch.cat([x, x[:1]])
            following = stack.enter_context(mode(rows, recording.records))
            u = self.model(x)
            following.finish()
            return u if rows.count == count else u[:count]

    def _recorded(self) -> Recording:
        """What functions that mix rows see when the network runs on the context, as it always does."""
        random = None if torch.compiler.is_compiling() else Random(self.context.device)
        recording = self._run(Recording(len(self.context), self.update_statistics))
        if random is not None and recording.overwritten():
            random.again()
            recording = self._run(Recording(len(self.context), False, copies=True))
        return recording

    def _run(self, recording: Recording) -> Recording:
        kept = contextlib.nullcontext() if recording.update_statistics else untracked_statistics(self.model)
        with kept, recording:
            self.model(self.context.clone())
        return recording

    @property
    def bind(self) -> Callable[..., Isolated]:
        return _Together(self.update_statistics, self.replace)


@dataclass(frozen=True)
class _Together:
    update_statistics: bool
    replace: bool

    def __call__(self, model: Model, context: Tensor, places: Tensor | None = None) -> Together:
        return Together(model, context, self.update_statistics, places, self.replace)


class Random:
    """The random state at one moment, to go back to: every batch draws the numbers that the plain batch would."""

    def __init__(self, device: torch.device):
        self.device = device
        self.cpu = torch.get_rng_state()
        self.cuda = torch.cuda.get_rng_state(device) if device.type == "cuda" else None

    def again(self) -> None:
        torch.set_rng_state(self.cpu)
        if self.cuda is not None:
            torch.cuda.set_rng_state(self.cuda, self.device)
