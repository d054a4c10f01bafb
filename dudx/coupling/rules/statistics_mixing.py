"""Batch norm, means and variances over the batch, with one sample replaced: an O(1) update per query."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from dudx.backend import norm_layers
from dudx.coupling.mixing_rule_table import mixing_rule
from dudx.coupling.one_pass_isolation import ContextPass
from dudx.coupling.query_rows import QueryRows


def within_each(dim: Any, ndim: int) -> tuple[int, ...] | None:
    """Return the axes of a reduction besides the batch, counted from the end; None if the batch is not reduced."""
    axes = range(ndim) if dim is None or dim == () else [dim] if isinstance(dim, int) else dim
    reduced = {axis % ndim for axis in axes}
    return tuple(axis - ndim for axis in sorted(reduced - {0})) if 0 in reduced else None


def _mean(x: Any, within: Sequence[int]) -> Any:
    return x.mean(tuple(within), keepdim=True) if within else x


def _means(rows: QueryRows, context: Any, queries: Any, within: Sequence[int]) -> Any:
    """Return the mean over each query's batch and the axes within each sample."""
    leaving, entering = rows.exchange(context, queries)
    mean = _mean(context, within).mean(0, keepdim=True)
    return mean + _mean(entering - leaving, within) / rows.size if rows.replace else mean


def _moments(rows: QueryRows, context: Any, queries: Any, within: Sequence[int]) -> tuple[Any, Any]:
    """Return each query's deviation from the mean of its batch, and the variance of that batch.

    Let c and y be the deviations of the replaced sample and of the query from the context's mean m. The mean of a
    query's batch is m + (y - c)/B and its variance v + (y² - c²)/B - (y - c)²/B², without cancellation.
    """
    mean = _mean(context, within).mean(0, keepdim=True)
    away = context - mean
    variance = _mean(away * away, within).mean(0, keepdim=True)
    if not rows.replace:
        return queries - mean, variance
    share = 1 / rows.size
    leaving, y = rows.exchange(away, queries - mean)
    if within:
        shift = _mean(y - leaving, within) * share
        return y - shift, variance + _mean((y - leaving) * (y + leaving), within) * share - shift * shift
    # Collected in powers of y, few terms depend on the query and need derivatives.
    still = variance - leaving * leaving * (share + share**2)
    return y * (1 - share) + leaving * share, still + y * (y * (share - share**2) + leaving * (2 * share**2))


# -- batch norm ------------------------------------------------------------------------------------------------------


def _norm_of_context(
    context_pass: ContextPass, function: Any, input: Any, running_mean: Any, running_var: Any, weight: Any = None,
    bias: Any = None, training: bool = False, *rest: Any, **named: Any,
) -> Any:  # fmt: skip
    """Apply batch norm to the context; running statistics are updated only if requested."""
    if training and not context_pass.update_statistics:
        running_mean = running_var = None
    return F.batch_norm(input, running_mean, running_var, weight, bias, training, *rest, **named)


def _batch_norm(
    rows: QueryRows, function: Any, input: Any, running_mean: Any, running_var: Any, weight: Any = None,
    bias: Any = None, training: bool = False, momentum: float = 0.1, eps: float = 1e-5,
) -> Any:  # fmt: skip
    if not training or not rows.leads(input):
        rows.alone()
        statistics = (None, None) if training else (running_mean, running_var)
        return norm_layers.batch_norm(input, *statistics, weight, bias, training, momentum, eps)
    context, queries = (norm_layers.wide(part) for part in rows.split(input))
    centred, variance = _moments(rows, context, queries, tuple(range(2 - input.ndim, 0)))
    normal = rows.join(context, norm_layers.standardised(centred, variance, eps, input.dtype))
    return norm_layers.scaled(normal, norm_layers.by_channel(input, weight), norm_layers.by_channel(input, bias))


mixing_rule(F.batch_norm, context=_norm_of_context)(_batch_norm)
mixing_rule(torch.batch_norm, context=norm_layers.in_torch_order(_norm_of_context))(
    norm_layers.in_torch_order(_batch_norm)
)


# -- reductions ------------------------------------------------------------------------------------------------------
# Each row gets its own result, which broadcasts as the single result of the batch would.


class _Reduction:
    """Arguments of a reduction over the batch, and the axes it reduces within each sample."""

    def __init__(self, rows: QueryRows, names: Sequence[str], x: Any, args: Sequence[Any], kwargs: dict[str, Any]):
        named = {{"axis": "dim", "keepdims": "keepdim"}.get(name, name): value for name, value in kwargs.items()}
        self.given = {**dict(zip(names, args, strict=False)), **{k: v for k, v in named.items() if v is not None}}
        known = len(args) <= len(names) and set(self.given) <= set(names)
        #: None if the batch is not reduced, or for unknown arguments.
        self.within = within_each(self.given.get("dim"), x.ndim) if known and rows.leads(x) else None
        self.count = rows.size * math.prod(x.shape[axis] for axis in self.within or ())

    def shaped(self, kept: Any) -> Any:
        """Reshape results with kept axes so that they broadcast against rows as the result of a batch would.

        Axes that were not reduced come last, and there are as many axes as the rows have.
        """
        if self.given.get("keepdim", False) or not self.within:
            return kept
        left = [length for axis, length in enumerate(kept.shape[1:], 1 - kept.ndim) if axis not in self.within]
        return kept.reshape(kept.shape[0], *[1] * len(self.within), *left)


@mixing_rule(torch.mean, Tensor.mean, torch.sum, Tensor.sum)
def _sum(rows: QueryRows, function: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
    over = _Reduction(rows, ("dim", "keepdim"), x, args, kwargs)
    if over.within is None:
        return function(x, *args, **kwargs)
    context, queries = rows.split(x)
    mean = rows.join(_mean(context, over.within), _means(rows, context, queries, over.within))
    return over.shaped(mean * over.count if function.__name__ == "sum" else mean)


@mixing_rule(torch.var, Tensor.var, torch.std, Tensor.std, torch.var_mean, torch.std_mean)
def _variance(rows: QueryRows, function: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
    # x.var(False) reduces all axes.
    after = (None, *args) if args and isinstance(args[0], bool) else args
    over = _Reduction(rows, ("dim", "unbiased", "keepdim", "correction"), x, after, kwargs)
    if over.within is None:
        return function(x, *args, **kwargs)
    context, queries = rows.split(x)
    reduced = _mean(context, over.within)
    lost = over.given.get("correction", int(over.given.get("unbiased", True)))
    variance = _moments(rows, context, queries, over.within)[1] * (over.count / (over.count - lost))
    variance = over.shaped(rows.join(reduced, variance))
    spread = torch.sqrt(variance) if function.__name__.startswith("std") else variance
    if not function.__name__.endswith("_mean"):
        return spread
    return spread, over.shaped(rows.join(reduced, _means(rows, context, queries, over.within)))
