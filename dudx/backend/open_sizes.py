"""Batch sizes that change from call to call: find what two calls share, so that one compiled graph serves all sizes."""

from __future__ import annotations

import importlib
from collections.abc import Hashable, Iterator, Sequence
from typing import Any

from torch import Tensor

#: For each tensor its sizes, dtype, device and requires_grad. A size of None stands for any size.
Shapes = tuple[tuple[tuple[int | None, ...], *tuple[Hashable, ...]], ...]


def shapes(*tensors: Tensor) -> Shapes:
    """Return what a graph of fixed shapes depends on."""
    return tuple((tuple(t.shape), t.dtype, t.device, t.requires_grad) for t in tensors)


def in_common(ours: Shapes, theirs: Shapes) -> Shapes | None:
    """Return the shapes with None where sizes differ; None if the tensors differ in anything else.

    A size of 1 never matches another size: it broadcasts, and torch does not leave it open.
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
    """Return the arguments with every tensor, also inside tuples, marked with the sizes that may change."""
    following: Iterator[Any] = iter(common)

    def marked(argument: Any) -> Any:
        if isinstance(argument, tuple):
            return tuple(marked(item) for item in argument)
        if not isinstance(argument, Tensor):
            return argument
        sizes = next(following)[0]
        return _with_open_sizes(argument, [axis for axis, size in enumerate(sizes) if size is None])

    return tuple(marked(argument) for argument in arguments)


def _with_open_sizes(tensor: Tensor, axes: Sequence[int]) -> Tensor:
    """Return a view that tells the compiler which sizes may change; a view, since the mark stays with a tensor.

    Without torch's mark every size is compiled separately.
    """
    mark = getattr(importlib.import_module("torch._dynamo"), "mark_dynamic", None)
    if not axes or mark is None:
        return tensor
    view = tensor.view_as(tensor)
    mark(view, list(axes))
    return view
