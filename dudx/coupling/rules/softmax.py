"""Softmax, extremes, lengths and dropout over the batch, with one sample replaced."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from dudx.coupling.rows import Recording, Rows, mixing_rule
from dudx.coupling.rules.statistics import arguments, means, plain, shaped, within_each

# -- softmax ---------------------------------------------------------------------------------------------------------


def _exponentials(rows: Rows, x: Any, within: Sequence[int] = ()) -> tuple[Any, Any, Tensor]:
    """Exponentials, their sum over each row's batch, and the shift that keeps both finite, whose derivative cancels.

    The shift is the largest of the context, or of the row itself where that is larger: no row depends on another.
    """

    def added(weights: Any) -> Any:
        return weights.sum(tuple(within), keepdim=True) if within else weights

    context, queries = rows.pair(x)
    largest = plain(context).amax((0, *within), keepdim=True)
    own_largest = plain(queries).amax(tuple(within), keepdim=True) if within else plain(queries)
    shift = torch.maximum(largest, own_largest)
    weights, of_context = torch.exp(torch.sub(queries, shift)), added(torch.exp(context - largest))
    whole, raised = of_context.sum(0, keepdim=True), torch.exp(largest - shift)
    leaving, entering = rows.exchange(of_context, added(weights))
    sums = raised * (whole - leaving) + entering if rows.replace else raised * whole
    return rows.join(context, weights), rows.join(whole, sums), rows.join(whole, shift)


@mixing_rule(torch.softmax, Tensor.softmax, F.softmax, torch.log_softmax, Tensor.log_softmax, F.log_softmax)
def _softmax(rows: Rows, function: Any, x: Any, dim: Any = None, *args: Any, **kwargs: Any) -> Any:
    if dim is None or not rows.leads(x) or within_each(dim, x.ndim) != ():
        return function(x, dim, *args, **kwargs)
    weights, sums, shift = _exponentials(rows, x)
    return weights / sums if function.__name__ == "softmax" else torch.sub(x, shift) - torch.log(sums)


@mixing_rule(torch.logsumexp, Tensor.logsumexp)
def _logsumexp(rows: Rows, function: Any, x: Any, dim: Any, keepdim: bool = False) -> Any:
    within = within_each(dim, x.ndim) if rows.leads(x) else None
    if within is None:
        return function(x, dim, keepdim)
    _, sums, shift = _exponentials(rows, x, within)
    return shaped(torch.log(sums) + shift, within, keepdim)


# -- extremes --------------------------------------------------------------------------------------------------------


class Extreme(NamedTuple):
    """What `x.max(0)` returns, under the names it has there."""

    values: Any
    indices: Tensor


def _largest(rows: Rows, context: Any, queries: Any) -> Extreme:
    """The largest entry of each row's batch: the context's, or its second where the largest is the one that left."""
    _, entering = rows.exchange(context, queries)
    places = plain(context).topk(2, dim=0).indices
    first, second = (context.gather(0, place) for place in places.split(1))
    samples = torch.arange(rows.size, device=places.device).reshape(-1, *[1] * (context.ndim - 1))
    own = samples if rows.places is None else samples[rows.places]
    left = own == places[:1]
    others, other_places = torch.where(left, second, first), torch.where(left, places[1:], places[:1])
    larger = plain(entering) > plain(others)
    values = rows.join(first, torch.where(larger, entering, others))
    return Extreme(values, rows.join(places[:1], torch.where(larger, own, other_places)))


@mixing_rule(torch.max, Tensor.max, torch.min, Tensor.min)
def _max(rows: Rows, function: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
    given = arguments(("dim", "keepdim"), args, kwargs)
    if given is None or not rows.leads(x) or isinstance(given.get("dim"), Tensor):  # max(x, y) is elementwise
        return function(x, *args, **kwargs)
    if "dim" not in given:
        return _amax(rows, function, x)
    if within_each(given["dim"], x.ndim) is None:
        return function(x, *args, **kwargs)
    if function.__name__ == "max":
        return _largest(rows, *rows.pair(x))
    found = _largest(rows, *(-part for part in rows.pair(x)))
    return Extreme(-found.values, found.indices)


@mixing_rule(torch.amax, Tensor.amax, torch.amin, Tensor.amin)
def _amax(rows: Rows, function: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
    given = arguments(("dim", "keepdim"), args, kwargs)
    within = within_each(given.get("dim"), x.ndim) if given is not None and rows.leads(x) else None
    if given is None or within is None:
        return function(x, *args, **kwargs)
    both = rows.pair(x) if function.__name__ in ("max", "amax") else [-part for part in rows.pair(x)]
    found = _largest(rows, *(part.amax(within, keepdim=True) if within else part for part in both)).values
    return shaped(found if function.__name__ in ("max", "amax") else -found, within, given.get("keepdim", False))


# -- lengths ---------------------------------------------------------------------------------------------------------


def _length(rows: Rows, x: Any, p: float, within: Sequence[int]) -> Any:
    """(Σ |x|^p)^(1/p) over each row's batch, the reduced axes kept."""
    if math.isinf(p) and p > 0:
        sizes = [torch.abs(part) for part in rows.pair(x)]
        return _largest(rows, *(part.amax(tuple(within), keepdim=True) if within else part for part in sizes)).values

    def power(x: Any) -> Any:
        return x * x if p == 2 else torch.abs(x) if p == 1 else torch.abs(x) ** p

    count = rows.size * math.prod(x.shape[axis] for axis in within)
    context, queries = rows.pair(x)
    sums = rows.join(*means(rows, power(context), power(queries), within)) * count
    return torch.sqrt(sums) if p == 2 else sums if p == 1 else sums ** (1 / p)


@mixing_rule(torch.norm, Tensor.norm, torch.linalg.vector_norm, torch.linalg.norm)
def _norm(rows: Rows, function: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
    given = arguments(("p", "dim", "keepdim"), args, {"p" if k == "ord" else k: v for k, v in kwargs.items()})
    within = within_each(given.get("dim"), x.ndim) if given is not None and rows.leads(x) else None
    if given is None or within is None:
        return function(x, *args, **kwargs)
    p = given.get("p", "fro")  # Frobenius' norm is Euclid's
    of_matrices = function.__name__ == "linalg_norm" and within and p != "fro"
    p = 2 if p == "fro" else p
    if of_matrices or not isinstance(p, int | float) or p <= 0:
        return function(x, *args, **kwargs)
    return shaped(_length(rows, x, p, within), within, given.get("keepdim", False))


@mixing_rule(F.normalize)
def _normalize(
    rows: Rows, function: Any, x: Any, p: float = 2.0, dim: Any = 1, eps: float = 1e-12, out: Any = None
) -> Any:
    within = within_each(dim, x.ndim) if rows.leads(x) and out is None and p > 0 else None
    if within is None:
        return function(x, p, dim, eps, out)
    length = _length(rows, x, p, within)
    return x / torch.where(plain(length) > eps, length, torch.full_like(plain(length), eps))


# -- dropout ---------------------------------------------------------------------------------------------------------


def _drop(
    recording: Recording, function: Any, x: Any, p: float = 0.5, training: bool = True, *args: Any, **kwargs: Any
) -> Any:
    """Dropout of the context, noting the mask."""
    if not training or p == 0:
        return function(x, p, training, *args, **kwargs)
    recording.note = F.dropout(torch.ones_like(x), p)
    return x * recording.note


@mixing_rule(F.dropout, torch.dropout, context=_drop)
def _dropout(
    rows: Rows, function: Any, x: Any, p: float = 0.5, training: bool = True, *args: Any, **kwargs: Any
) -> Any:
    """A sample drops the same features wherever it is moved: those the batch by itself drops."""
    kept = rows.note
    if kept is None:
        return function(x, p, training, *args, **kwargs)
    axes = rows.axes(x)
    return x * (rows.owned(kept, axes[0]) if axes else kept)
