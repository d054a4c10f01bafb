"""A batch of any size in constant memory: slices forward and backward one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor, nn

from dudx.errors import InputError

_slicing: ContextVar[bool] = ContextVar("dudx_slicing", default=False)


def backward(loss: Callable[..., Tensor], x: Tensor | Sequence[Tensor], chunk: int | None = None) -> Tensor:
    """Add the gradient of a mean loss to the parameters' `.grad`, slice by slice of the batch.

    The result is that of `loss(x).backward()` up to rounding, in the memory of one slice. Slices that fit into the
    processor's cache are also faster. A network whose samples influence each other has no slices, and is refused.

    Args:
        loss: from a slice of the points to the mean over that slice; with several tensors, from a slice of each.
        x: the points (B, d), or several tensors of B rows each, such as points and normals.
        chunk: rows in a slice; None takes the whole batch at once. `suggested_chunk(model)` knows a good number.

    Returns:
        The loss of the whole batch, detached.
    """
    tensors = (x,) if isinstance(x, Tensor) else tuple(x)
    if not tensors or any(not isinstance(t, Tensor) or t.ndim == 0 or len(t) != len(tensors[0]) for t in tensors):
        raise InputError("backward slices one tensor or several with the same number of rows.")
    count = len(tensors[0])
    if count == 0:
        raise InputError("The batch is empty; give at least one point.")
    if chunk is None:
        chunk = count
    if isinstance(chunk, bool) or not isinstance(chunk, int) or chunk < 1:
        raise InputError(f"chunk must be a whole number of rows, 1 or more; got {chunk!r}.")
    total: Any = 0.0
    with _sliced(chunk < count):
        for slices in zip(*(t.split(chunk) for t in tensors), strict=True):
            mean = loss(*slices)
            if not isinstance(mean, Tensor) or mean.numel() != 1:
                raise InputError("The loss given to backward must return one number, the mean over its points.")
            share = mean * (len(slices[0]) / count)
            share.backward()
            total = total + share.detach()
    return total


@contextmanager
def _sliced(active: bool) -> Iterator[None]:
    token = _slicing.set(active)
    try:
        yield
    finally:
        _slicing.reset(token)


def slicing() -> bool:
    """Whether a batch is being taken apart at the moment."""
    return _slicing.get()


#: Bytes that the activations of one slice may take: a few times a core's second-level cache, a part of the third.
_CACHE = 8 * 2**20
#: Copies of each layer's activations alive in a training step, by measurement: streams, their products, gradients.
_COPIES = 8


def suggested_chunk(model: object, device: torch.device | str = "cpu", streams: int = 4) -> int:
    """Rows in a slice whose activations stay in the cache, a power of two.

    On a GPU slices only save memory, so they are as large as keeps it busy.
    """
    if torch.device(device).type != "cpu":
        return 2**16
    parameters = list(model.parameters()) if isinstance(model, nn.Module) else []
    width = max((max(p.shape) for p in parameters if p.ndim == 2), default=128)
    size = parameters[0].element_size() if parameters else 4
    rows = _CACHE / (width * size * streams * _COPIES / 4)
    return 2 ** max(6, min(16, round(rows).bit_length() - 1))
