"""Batch norm and reductions over the batch, with one sample replaced: an update of O(1) for each query."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from dudx.coupling.rows import Recording, Rows, mixing_rule

_HALF = (torch.float16, torch.bfloat16)


def plain(x: Any) -> Tensor:
    """The value of a tensor or jet, apart from every graph."""
    return getattr(x, "value", x).detach()


def within_each(dim: Any, ndim: int) -> tuple[int, ...] | None:
    """The axes a reduction runs over besides the batch, counted from the end; None if it leaves the batch alone."""
    axes = range(ndim) if dim is None or dim == () else [dim] if isinstance(dim, int) else dim
    reduced = {axis % ndim for axis in axes}
    return tuple(axis - ndim for axis in sorted(reduced - {0})) if 0 in reduced else None


def shaped(kept: Any, within: Sequence[int], keepdim: bool) -> Any:
    """Results with their reduced axes kept, shaped to broadcast against rows as the one result of a batch would.

    That is with the axes that were not reduced at the end, and as many axes as the rows have.
    """
    if keepdim or not within:
        return kept
    left = [length for axis, length in enumerate(kept.shape[1:], 1 - kept.ndim) if axis not in within]
    return kept.reshape(kept.shape[0], *[1] * len(within), *left)


def _mean(x: Any, within: Sequence[int]) -> Any:
    return x.mean(tuple(within), keepdim=True) if within else x


def means(rows: Rows, context: Any, queries: Any, within: Sequence[int] = ()) -> tuple[Any, Any]:
    """The mean over the batch and the axes within each sample, of the context and of every query's batch."""
    leaving, entering = rows.exchange(context, queries)
    mean = _mean(context, within).mean(0, keepdim=True)
    return mean, mean + _mean(entering - leaving, within) / rows.size if rows.replace else mean


def moments(rows: Rows, context: Any, queries: Any, within: Sequence[int] = ()) -> tuple[Any, Any, Any, Any]:
    """Mean and variance of the context, then of every query's batch.

    With the deviation δ = e - l of the one entry that moves, the mean moves by δ/B, and the sum of squares about the
    context's mean by (e - m)² - (l - m)² = δ (e + l - 2m): no difference of large numbers.
    """
    leaving, entering = rows.exchange(context, queries)
    mean = _mean(context, within).mean(0, keepdim=True)
    away = context - mean
    variance = _mean(away * away, within).mean(0, keepdim=True)
    if not rows.replace:
        return mean, variance, mean, variance
    moved = entering - leaving
    shift = _mean(moved, within) / rows.size
    squares = _mean(moved * (entering + (leaving - 2 * mean)), within) / rows.size
    return mean, variance, mean + shift, variance + squares - shift * shift


def _centred(rows: Rows, context: Any, queries: Any, within: Sequence[int]) -> tuple[Any, Any]:
    """Every query's deviation from its own mean, and its own variance.

    With c = l - m and y = e - m, a query's mean is m + (y - c)/B and its variance v + (y² - c²)/B - (y - c)²/B².
    Collected in powers of y there is little that depends on the query, and so little to be differentiated.
    """
    if within or not rows.replace:
        _, _, own_mean, own_variance = moments(rows, context, queries, within)
        return queries - own_mean, own_variance
    mean = context.mean(0, keepdim=True)
    away = context - mean
    variance = (away * away).mean(0, keepdim=True)
    share = 1 / rows.size
    leaving, y = rows.exchange(away, queries - mean)
    still = variance - leaving * leaving * (share + share**2)
    own_variance = still + y * (y * (share - share**2) + leaving * (2 * share**2))
    return y * (1 - share) + leaving * share, own_variance


def _context_norm(recording: Recording, function: Any, *args: Any, **kwargs: Any) -> Any:
    """Batch norm of the context, which leaves a trace in running statistics only where it is to."""
    if recording.update_statistics:
        return function(*args, **kwargs)

    def untracked(
        x: Any, mean: Any, variance: Any, weight: Any = None, bias: Any = None, training: bool = False, *rest: Any,
        **named: Any,
    ) -> Any:  # fmt: skip
        mean, variance = (None, None) if training else (mean, variance)
        return F.batch_norm(x, mean, variance, weight, bias, training, *rest, **named)

    return untracked(*args, **kwargs)


@mixing_rule(F.batch_norm, context=_context_norm)
def _batch_norm(
    rows: Rows,
    function: Any,
    x: Any,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    if not training:
        return function(x, running_mean, running_var, weight, bias, training, momentum, eps)
    if not rows.leads(x):
        return function(x, None, None, weight, bias, training, momentum, eps)
    context, queries = rows.pair(x)
    # Half precision is too coarse for sums of squares; the fused kernels also compute in single precision.
    if x.dtype in _HALF:
        context, queries = context.float(), queries.float()
    away, variance = _centred(rows, context, queries, tuple(range(2 - x.ndim, 0)))
    normal = rows.join(context, away * torch.rsqrt(variance + eps))
    normal = normal.to(x.dtype) if x.dtype in _HALF else normal
    channels = (1, -1, *[1] * (x.ndim - 2))
    normal = normal if weight is None else normal * weight.reshape(channels)
    return normal if bias is None else normal + bias.reshape(channels)


def _context_torch_norm(
    recording: Recording, function: Any, x: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any,
    training: bool, *rest: Any,
) -> Any:  # fmt: skip
    if training and not recording.update_statistics:
        running_mean = running_var = None
    return function(x, weight, bias, running_mean, running_var, training, *rest)


@mixing_rule(torch.batch_norm, context=_context_torch_norm)
def _torch_batch_norm(
    rows: Rows, function: Any, x: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any, training: bool,
    momentum: float, eps: float, cudnn_enabled: bool,
) -> Any:  # fmt: skip
    if not training:
        return function(x, weight, bias, running_mean, running_var, training, momentum, eps, cudnn_enabled)
    return _batch_norm(rows, F.batch_norm, x, running_mean, running_var, weight, bias, training, momentum, eps)


# -- reductions ------------------------------------------------------------------------------------------------------
# Each row gets a result of its own, which broadcasts as the one result of the batch would.


def arguments(names: Sequence[str], args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any] | None:
    """The arguments by name, numpy's names translated; None if there are others, which no rule knows."""
    named = {{"axis": "dim", "keepdims": "keepdim"}.get(name, name): value for name, value in kwargs.items()}
    named = {**dict(zip(names, args, strict=False)), **{k: v for k, v in named.items() if v is not None}}
    return named if len(args) <= len(names) and set(named) <= set(names) else None


@mixing_rule(torch.mean, Tensor.mean, torch.sum, Tensor.sum)
def _sum(rows: Rows, function: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
    given = arguments(("dim", "keepdim", "dtype"), args, kwargs)
    within = within_each(given.get("dim"), x.ndim) if given is not None and rows.leads(x) else None
    if given is None or within is None:
        return function(x, *args, **kwargs)
    context, queries = rows.pair(x)
    if given.get("dtype") is not None:
        context, queries = context.to(given["dtype"]), queries.to(given["dtype"])
    counting = function.__name__ == "sum" and not context.is_floating_point()  # such as (x > 0).sum(0)
    if counting:
        context, queries = context.double(), queries.double()
    result = rows.join(*means(rows, context, queries, within))
    if function.__name__ == "sum":
        result = result * (rows.size * math.prod(x.shape[axis] for axis in within))
    result = result.round().long() if counting else result
    return shaped(result, within, given.get("keepdim", False))


def _spread(rows: Rows, x: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Any, Any] | None:
    """The mean and the variance over the batch; None for a call that leaves the batch alone."""
    if args and isinstance(args[0], bool):  # x.var(False) is over everything
        args = (None, *args)
    given = arguments(("dim", "unbiased", "keepdim", "correction"), args, kwargs)
    within = within_each(given.get("dim"), x.ndim) if given is not None and rows.leads(x) else None
    if given is None or within is None:
        return None
    mean, variance, own_mean, own_variance = moments(rows, *rows.pair(x), within)
    count = rows.size * math.prod(x.shape[axis] for axis in within)
    scale = count / (count - given.get("correction", int(given.get("unbiased", True))))
    both = (rows.join(mean, own_mean), rows.join(variance, own_variance) * scale)
    return tuple(shaped(part, within, given.get("keepdim", False)) for part in both)  # type: ignore[return-value]


@mixing_rule(torch.var, Tensor.var, torch.std, Tensor.std)
def _variance(rows: Rows, function: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
    spread = _spread(rows, x, args, kwargs)
    if spread is None:
        return function(x, *args, **kwargs)
    return spread[1] if function.__name__ == "var" else torch.sqrt(spread[1])


@mixing_rule(torch.var_mean, torch.std_mean)
def _variance_and_mean(rows: Rows, function: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
    spread = _spread(rows, x, args, kwargs)
    if spread is None:
        return function(x, *args, **kwargs)
    return (spread[1] if function.__name__ == "var_mean" else torch.sqrt(spread[1])), spread[0]
