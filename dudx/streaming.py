"""A batch of any size in constant memory: slices forward and backward one after the other."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from dudx.engines.base import RowsPerPoint
from dudx.errors import InputError
from dudx.network.slices import sliced


def backward(loss: Callable[..., Tensor], x: Tensor | Sequence[Tensor], chunk: int | None = None) -> Tensor:
    """Add the gradient of a mean loss to the parameters' `.grad`, slice by slice of the batch.

    The result is that of `loss(x).backward()` up to rounding, in the memory of one slice. Slices that fit into the
    processor's cache are also faster, more so after `keep_freed_memory()`. A network whose samples influence each other
    has no slices, and is refused; `isolate(model, x).at(which)`, made of the whole batch, has them.

    Args:
        loss: from a slice of the points to the mean over that slice; with several tensors, from a slice of each.
        x: the points (B, d), or several tensors of B rows each, such as points and normals.
        chunk: rows in a slice; None takes the whole batch at once. `suggested_chunk(model)` knows a good number.

    Returns:
        The loss of the whole batch, detached.

    >>> model, x = torch.nn.Linear(2, 1), torch.rand(1000, 2)
    >>> equation = dudx.Residual(lambda u: u.x + u.y, inputs=("x", "y"))
    >>> loss = dudx.backward(lambda part: equation.loss(model, part, dudx.AD()), x, chunk=256)
    >>> torch.allclose(loss, equation.loss(model, x, dudx.AD())), model.weight.grad is not None
    (True, True)
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
    with sliced(count if chunk < count else 0):
        for slices in zip(*(t.split(chunk) for t in tensors), strict=True):
            mean = loss(*slices)
            if not isinstance(mean, Tensor) or mean.numel() != 1:
                raise InputError("The loss given to backward must return one number, the mean over its points.")
            share = len(slices[0]) / count
            mean.backward(torch.full_like(mean, share))
            total = total + share * mean.detach()
    return total


#: Bytes of one layer's activations that a thread has to do with in a pass, by measurement on widths 64, 128 and 256:
#: with more, the next layer finds them gone from the cache; with less, the cost of each call shows.
_LAYER = 2 * 2**20
#: How much more it may be where several threads share a call: at its end they wait for each other, which costs more
#: than what is gone from the cache (`benchmarks/streaming.py --threads 2 --chunks auto 512 1024 2048 4096 8192`).
_SHARED = 4
#: Bytes that a slice may keep for its backward pass, and how many tensors a layer keeps for each row.
_KEPT, _TENSORS = 2**28, 3


def suggested_chunk(model: object, device: torch.device | str = "cpu", rows: RowsPerPoint | int = 4) -> int:
    """How many points a slice should have so that a layer's activations stay in the cache, a power of two.

    The threads that torch works with (`torch.get_num_threads()`) share a slice: each has a cache of its own, and all
    wait for the last one, so that several want larger slices. On a GPU slices only save memory, so they are as large as
    keeps it busy.

    Args:
        model: its widest layer decides.
        device: where it runs.
        rows: what the engine makes of a point, `engine.rows(x, operators)`; a number stands for both.

    >>> narrow, wide = torch.nn.Linear(2, 64), torch.nn.Linear(2, 256)
    >>> dudx.suggested_chunk(narrow) == 4 * dudx.suggested_chunk(wide)
    True
    """
    if torch.device(device).type != "cpu":
        return 2**16
    rows = RowsPerPoint(rows, rows) if isinstance(rows, int) else rows
    weights = [p for p in model.parameters() if p.ndim == 2] if isinstance(model, nn.Module) else []
    widths = [p.shape[0] for p in weights] or [128] * 5
    size = weights[0].element_size() if weights else 4
    threads = torch.get_num_threads()
    by_cache = _LAYER * (_SHARED * threads if threads > 1 else 1) / (max(widths) * size * rows.at_once)
    by_memory = _KEPT / (sum(widths) * size * rows.kept * _TENSORS)
    return 2 ** max(4, min(16, int(math.log2(min(by_cache, by_memory)))))
