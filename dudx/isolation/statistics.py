"""Batch norm and reductions over the batch, with one sample replaced: an update of O(1) for each query."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from dudx.isolation.rows import Rows, mixing_rule

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


def means(rows: Rows, x: Any, within: Sequence[int] = ()) -> tuple[Any, Any]:
    """The mean over the batch and the axes within each sample, of the context and of every query's batch."""
    context, queries = rows.split(x)
    leaving, entering = rows.exchange(context, queries)
    mean = _mean(context, within).mean(0, keepdim=True)
    return mean, mean + _mean(entering - leaving, within) / rows.size


def moments(rows: Rows, x: Any, within: Sequence[int] = ()) -> tuple[Any, Any, Any, Any]:
    """Mean and variance of the context, then of every query's batch.

    With the deviation δ = e - l of the one entry that moves, the mean moves by δ/B, and the sum of squares about the
    context's mean by (e - m)² - (l - m)² = δ (e + l - 2m): no difference of large numbers.
    """
    context, queries = rows.split(x)
    leaving, entering = rows.exchange(context, queries)
    mean = _mean(context, within).mean(0, keepdim=True)
    away = context - mean
    variance = _mean(away * away, within).mean(0, keepdim=True)
    moved = entering - leaving
    shift = _mean(moved, within) / rows.size
    squares = _mean(moved * (entering + leaving - 2 * mean), within) / rows.size
    return mean, variance, mean + shift, variance + squares - shift * shift


def _centred(rows: Rows, x: Any, within: Sequence[int]) -> tuple[Any, Any, Any, Any, Any]:
    """The context's mean, variance and deviations; every query's deviation from its own mean, and its own variance.

    With c = l - m and y = e - m, a query's mean is m + (y - c)/B and its variance v + (y² - c²)/B - (y - c)²/B².
    Collected in powers of y there is little that depends on the query, and so little to be differentiated.
    """
    if within or not rows.replace:
        mean, variance, own_mean, own_variance = moments(rows, x, within)
        context, queries = rows.split(x)
        return mean, variance, context - mean, queries - own_mean, own_variance
    context, queries = rows.split(x)
    mean = context.mean(0, keepdim=True)
    away = context - mean
    variance = (away * away).mean(0, keepdim=True)
    share = 1 / rows.size
    leaving, y = rows.exchange(away, queries - mean)
    still = variance - leaving * leaving * (share + share**2)
    own_variance = still + y * (y * (share - share**2) + leaving * (2 * share**2))
    return mean, variance, away, y * (1 - share) + leaving * share, own_variance


@mixing_rule(F.batch_norm)
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
    if not training or not rows.leads(x):
        return function(x, running_mean, running_var, weight, bias, training, momentum, eps)
    # Half precision is too coarse for sums of squares; the fused kernels also compute in single precision.
    wide = x.float() if x.dtype in _HALF else x
    mean, variance, away, of_queries, own_variance = _centred(rows, wide, tuple(range(2 - x.ndim, 0)))
    if rows.update_statistics:
        count = rows.size * math.prod(x.shape[2:])
        _follow(running_mean, mean, momentum)
        _follow(running_var, variance * (count / (count - 1)), momentum)
    normal = rows.join(away * torch.rsqrt(variance + eps), of_queries * torch.rsqrt(own_variance + eps))
    normal = normal.to(x.dtype) if wide is not x else normal
    channels = (1, -1, *[1] * (x.ndim - 2))
    normal = normal if weight is None else normal * weight.reshape(channels)
    return normal if bias is None else normal + bias.reshape(channels)


def _follow(running: Tensor | None, now: Any, momentum: float) -> None:
    if running is not None:
        with torch.no_grad():
            running.lerp_(plain(now).flatten().to(running), momentum)


@mixing_rule(torch.batch_norm)
def _torch_batch_norm(
    rows: Rows, function: Any, x: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any, training: bool,
    momentum: float, eps: float, cudnn_enabled: bool,
) -> Any:  # fmt: skip
    if not training or not rows.leads(x):
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
    x = x if given.get("dtype") is None else x.to(given["dtype"])
    counting = function.__name__ == "sum" and not x.is_floating_point()  # such as (x > 0).sum(0)
    both = rows.join(*means(rows, x.double() if counting else x, within))
    if function.__name__ == "sum":
        both = both * (rows.size * math.prod(x.shape[axis] for axis in within))
    both = both.round().long() if counting else both
    return shaped(both, within, given.get("keepdim", False))


def _spread(rows: Rows, x: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Any, Any] | None:
    """The mean and the variance over the batch; None for a call that leaves the batch alone."""
    if args and isinstance(args[0], bool):  # x.var(False) is over everything
        args = (None, *args)
    given = arguments(("dim", "unbiased", "keepdim", "correction"), args, kwargs)
    within = within_each(given.get("dim"), x.ndim) if given is not None and rows.leads(x) else None
    if given is None or within is None:
        return None
    mean, variance, own_mean, own_variance = moments(rows, x, within)
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
