"""The rows of the queries, and what a mixing function saw of the context where it sees them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from dudx.errors import InputError


class ContextCall:
    """One call of a mixing function for the context: its rule and arguments, and what else the rule wants to know."""

    def __init__(self, rule: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]):
        self.rule, self.args, self.kwargs = rule, args, kwargs
        self.note: Any = None
        self.versions: list[int] = []
        #: Whether it turned out to mix rows, when the queries had passed.
        self.mixes = True

    def tensors(self) -> Iterator[Tensor]:
        """The arguments that are tensors."""
        return (value for value in (*self.args, *self.kwargs.values()) if isinstance(value, Tensor))

    def written(self) -> list[int]:
        """How often the arguments have been written to."""
        return [] if torch.compiler.is_compiling() else [t._version for t in self.tensors() if not t.is_inference()]


class QueryRows:
    """The rows of the queries, in blocks with one row for each sample, and what is known of the context.

    Args:
        size: samples in the context.
        count: rows of queries.
        places: the samples that the rows of a block belong to; None means all of them, in order.
        replace: whether a query takes its sample's place in what others see of the context, or leaves it as it is.
    """

    def __init__(self, size: int, count: int, places: Tensor | None, replace: bool):
        self.size, self.count, self.places, self.replace = size, count, places, replace

    def take(self, call: ContextCall, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Go on to the next call: what the function saw of the context, and its arguments for the queries."""
        self.call, self.args, self.kwargs = call, args, kwargs
        #: What was noted of this call for the context.
        self.note = call.note

    def alone(self) -> None:
        """Say that this call mixes no rows, so that it does not count among the layers that do."""
        self.call.mixes = False

    @property
    def block(self) -> int:
        """Rows in a block of queries."""
        return self.size if self.places is None else len(self.places)

    def of_context(self, x: Any) -> Any:
        """What the function was given for the context where it is given x now."""
        for now, then in zip(self.args, self.call.args, strict=False):
            if now is x:
                return then
        for name, now in self.kwargs.items():
            if now is x and name in self.call.kwargs:
                return self.call.kwargs[name]
        raise InputError(
            "A mixing rule splits an argument of its function as it is; compute with context and queries afterwards."
        )

    def axes(self, x: Any) -> list[int]:
        """The axes of an argument that count rows."""
        then = self.of_context(x)
        if not isinstance(then, Tensor) or then is x or then.ndim != x.ndim:
            return []
        lengths = list(zip(then.shape, x.shape, strict=True))
        found = [axis for axis, pair in enumerate(lengths) if pair == (self.size, self.count)]
        same = all(pair[0] == pair[1] for axis, pair in enumerate(lengths) if axis not in found)
        return found if same else []

    def leads(self, x: Any) -> bool:
        """Whether the first axis of an argument counts the rows."""
        return isinstance(getattr(x, "shape", None), torch.Size) and 0 in self.axes(x)

    def split(self, x: Any) -> tuple[Any, Any]:
        """An argument of the function for the context (B, …) and for the queries ([blocks,] samples, …)."""
        return self.of_context(x), x if self.count == self.block else x.reshape(-1, self.block, *x.shape[1:])

    def exchange(self, context: Any, queries: Any) -> tuple[Any, Any]:
        """What leaves the context, (samples, …), and what enters, ([blocks,] samples, …): queries, or all as it was."""
        leaving = context if self.places is None else context[self.places]
        return leaving, queries if self.replace else leaving

    def join(self, context: Any, queries: Any) -> Any:
        """Results as rows again; one that is the same for several samples or blocks is repeated."""
        rest = context.shape[1:]
        if queries.shape == (self.count, *rest):
            return queries
        full = (self.count // self.block, self.block, *rest)
        queries = queries if queries.shape == full else queries.expand(full)
        return queries.reshape(self.count, *rest)

    def owners(self, device: torch.device) -> Tensor:
        """The sample that each row belongs to."""
        places = torch.arange(self.size, device=device) if self.places is None else self.places
        return places.repeat(self.count // self.block)

    def owned(self, of_context: Any, axis: int) -> Any:
        """What belongs to samples along an axis as belonging to rows."""
        aligned = self.places is None and self.count == self.size
        return of_context if aligned else of_context.index_select(axis, self.owners(of_context.device))
