"""Sizes that change from call to call: what two calls have in common, so that one graph takes both and all others."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any

from torch import Tensor

from dudx.backend.private_torch import with_open_sizes

#: For each tensor its sizes and what else it is; None is any size.
Shapes = tuple[tuple[tuple[int | None, ...], *tuple[Hashable, ...]], ...]


def shapes(*tensors: Tensor) -> Shapes:
    """What fixed shapes depend on."""
    return tuple((tuple(t.shape), t.dtype, t.device, t.requires_grad) for t in tensors)


def in_common(ours: Shapes, theirs: Shapes) -> Shapes | None:
    """The shapes with None in place of sizes that differ; None where the tensors differ in something else.

    A size of 1 is another matter than others: it is broadcast, and torch never leaves it open.
    """
    if len(ours) != len(theirs):
        return None
    found = []
    for (a, *kind), (b, *other_kind) in zip(ours, theirs, strict=True):
        if kind != other_kind or len(a) != len(b):
            return None
        if any(m != n and 1 in (m, n) for m, n in zip(a, b, strict=True)):
            return None
        found.append((tuple(m if m == n else None for m, n in zip(a, b, strict=True)), *kind))
    return tuple(found)


def opened(arguments: tuple[Any, ...], common: Shapes) -> tuple[Any, ...]:
    """Arguments whose tensors, those in tuples among them, tell torch.compile which of their sizes may change."""
    following: Iterator[Any] = iter(common)

    def told(argument: Any) -> Any:
        if isinstance(argument, tuple):
            return tuple(told(item) for item in argument)
        if not isinstance(argument, Tensor):
            return argument
        sizes = next(following)[0]
        return with_open_sizes(argument, [axis for axis, size in enumerate(sizes) if size is None])

    return tuple(told(argument) for argument in arguments)
