"""Rows of the queries, and the corresponding calls of mixing functions for the context."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from dudx.errors import InputError


class ContextCall:
    """A call of a mixing function for the context: its rule, its arguments and a note for the rule."""

    def __init__(self, rule: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]):
        self.rule, self.args, self.kwargs = rule, args, kwargs
        self.note: Any = None
        self.versions: list[int] = []
        #: True if the call mixes rows; set by the rule in the pass of the queries.
        self.mixes = True

    def tensors(self) -> Iterator[Tensor]:
        """The arguments that are tensors."""
        return (value for value in (*self.args, *self.kwargs.values()) if isinstance(value, Tensor))

    def written(self) -> list[int]:
        """Version counters of the arguments."""
        return [] if torch.compiler.is_compiling() else [t._version for t in self.tensors() if not t.is_inference()]


class QueryRows:
    """The rows of the queries, in blocks with one row per sample, and the context of the current call.

    Args:
        size: number of samples in the context.
        count: number of rows of queries.
        places: indices of the samples that the rows of a block belong to; None means all of them, in order.
        replace: if True, a query replaces its sample in the context; otherwise the context is unchanged.
    """

    def __init__(self, size: int, count: int, places: Tensor | None, replace: bool):
        self.size, self.count, self.places, self.replace = size, count, places, replace

    def take(self, call: ContextCall, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Set the current call: its record for the context, and its arguments for the queries."""
        self.call, self.args, self.kwargs = call, args, kwargs
        #: The note of this call from the pass of the context.
        self.note = call.note

    def alone(self) -> None:
        """Declare that this call mixes no rows, so that it does not count as a mixing layer."""
        self.call.mixes = False

    @property
    def block(self) -> int:
        """Number of rows in a block of queries."""
        return self.size if self.places is None else len(self.places)

    def of_context(self, x: Any) -> Any:
        """Return the argument for the context that corresponds to the argument x for the queries."""
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
        """Return the axes of an argument that count rows."""
        then = self.of_context(x)
        if not isinstance(then, Tensor) or then is x or then.ndim != x.ndim:
            return []
        lengths = list(zip(then.shape, x.shape, strict=True))
        found = [axis for axis, pair in enumerate(lengths) if pair == (self.size, self.count)]
        same = all(pair[0] == pair[1] for axis, pair in enumerate(lengths) if axis not in found)
        return found if same else []

    def leads(self, x: Any) -> bool:
        """Return True if the first axis of an argument counts the rows."""
        return isinstance(getattr(x, "shape", None), torch.Size) and 0 in self.axes(x)

    def split(self, x: Any) -> tuple[Any, Any]:
        """Return an argument of the function for the context (B, …) and for the queries ([blocks,] samples, …)."""
        return self.of_context(x), x if self.count == self.block else x.reshape(-1, self.block, *x.shape[1:])

    def exchange(self, context: Any, queries: Any) -> tuple[Any, Any]:
        """Return what leaves the context, (samples, …), and what replaces it, ([blocks,] samples, …)."""
        leaving = context if self.places is None else context[self.places]
        return leaving, queries if self.replace else leaving

    def join(self, context: Any, queries: Any) -> Any:
        """Return results as rows; one that is shared by samples or blocks is repeated."""
        rest = context.shape[1:]
        if queries.shape == (self.count, *rest):
            return queries
        full = (self.count // self.block, self.block, *rest)
        queries = queries if queries.shape == full else queries.expand(full)
        return queries.reshape(self.count, *rest)

    def owners(self, device: torch.device) -> Tensor:
        """Return the index of the sample of each row."""
        places = torch.arange(self.size, device=device) if self.places is None else self.places
        return places.repeat(self.count // self.block)

    def owned(self, of_context: Any, axis: int) -> Any:
        """Expand values per sample along an axis to values per row."""
        aligned = self.places is None and self.count == self.size
        return of_context if aligned else of_context.index_select(axis, self.owners(of_context.device))
