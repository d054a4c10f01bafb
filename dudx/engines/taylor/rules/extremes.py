"""Selection of values: maxima, minima, sorting. Equal candidates share the derivative equally, as in torch."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dudx.engines.taylor.jet import Jet, constant
from dudx.engines.taylor.rule_helpers import is_jet, values_of
from dudx.engines.taylor.rule_table import RULES, NotCoveredError, taylor_rule
from dudx.engines.taylor.rules.arithmetic import with_axes


def _either(value: Tensor, share: Tensor, a: Any, b: Any) -> Jet:
    """Return one of two numbers with a known value; the first contributes its share of the derivatives."""
    jet = a if is_jet(a) else b
    sides = [with_axes(side if is_jet(side) else constant(jet, side), value.ndim) for side in (a, b)]
    share = share.to(value.dtype)
    return Jet(jet.layout, value, share * sides[0].streams + (1 - share) * sides[1].streams)


@taylor_rule(torch.maximum, Tensor.maximum)
def maximum(a: Any, b: Any, *, out: Any = None) -> Jet:
    if out is not None:
        raise NotCoveredError
    first, second = values_of(a), values_of(b)
    return _either(torch.maximum(first, second), (first > second) + 0.5 * (first == second), a, b)


@taylor_rule(torch.minimum, Tensor.minimum)
def minimum(a: Any, b: Any, *, out: Any = None) -> Jet:
    if out is not None:
        raise NotCoveredError
    first, second = values_of(a), values_of(b)
    return _either(torch.minimum(first, second), (first < second) + 0.5 * (first == second), a, b)


@taylor_rule(torch.clamp, torch.clip, Tensor.clamp, Tensor.clip)
def clamp(x: Any, min: Any = None, max: Any = None, *, out: Any = None) -> Jet:
    if out is not None or not is_jet(x) or is_jet(min) or is_jet(max):
        raise NotCoveredError
    value = torch.clamp(x.value, min, max)
    inside: Any = True
    inside = inside if min is None else x.value >= min
    inside = inside if max is None else (x.value <= max) & inside
    if isinstance(inside, bool):
        return x
    whole = with_axes(x, value.ndim)
    return Jet(x.layout, value, inside.to(value.dtype) * whole.streams)


@taylor_rule(torch.clamp_min, Tensor.clamp_min)
def clamp_min(x: Any, min: Any) -> Jet:
    return clamp(x, min)


@taylor_rule(torch.clamp_max, Tensor.clamp_max)
def clamp_max(x: Any, max: Any) -> Jet:
    return clamp(x, None, max)


def _extreme(function: Any, pair: Any, name: str) -> Any:
    """Return the rule of max or min: over all entries, along an axis, or of two tensors."""

    def rule(x: Any, dim: Any = None, keepdim: bool = False, *, out: Any = None) -> Any:
        if out is not None or not is_jet(x):
            raise NotCoveredError
        if is_jet(dim) or isinstance(dim, Tensor):
            return pair(x, dim)
        if dim is None:
            return function(x, tuple(range(x.ndim)))
        value, indices = getattr(torch, name)(x.value, dim, keepdim)
        return getattr(torch.return_types, name)((_chosen(x, value, indices, dim, keepdim), indices))

    return rule


def _chosen(x: Jet, value: Tensor, indices: Tensor, dim: int, keepdim: bool) -> Jet:
    """Return the entries at given positions along an axis."""
    if x.ndim == 0:
        return x
    places = indices if keepdim else indices.unsqueeze(dim)
    axis = dim % x.ndim + 1
    streams = torch.take_along_dim(x.full(), places.unsqueeze(0), axis)
    return Jet(x.layout, value, streams if keepdim else streams.squeeze(axis))


def _largest(function: Any) -> Any:
    def rule(x: Any, dim: Any = (), keepdim: bool = False, *, out: Any = None) -> Jet:
        if out is not None:
            raise NotCoveredError
        axes = tuple(range(x.ndim)) if dim in ((), []) else (dim,) if isinstance(dim, int) else tuple(dim)
        if not axes:
            return x
        value = function(x.value, axes, keepdim=True)
        chosen = (x.value == value).to(x.dtype)
        share = chosen / chosen.sum(axes, keepdim=True)
        streams = (share * x.streams).sum([axis % x.ndim + 1 for axis in axes], keepdim=keepdim)
        return Jet(x.layout, value if keepdim else function(x.value, axes), streams)

    return rule


amax, amin = _largest(torch.amax), _largest(torch.amin)
for _owner in (torch, Tensor):
    RULES[_owner.amax], RULES[_owner.amin] = amax, amin
    RULES[_owner.max] = _extreme(amax, maximum, "max")
    RULES[_owner.min] = _extreme(amin, minimum, "min")


@taylor_rule(torch.aminmax, Tensor.aminmax)
def aminmax(x: Any, *, dim: Any = None, keepdim: bool = False) -> Any:
    axes = () if dim is None else dim
    return torch.return_types.aminmax((amin(x, axes, keepdim), amax(x, axes, keepdim)))


def _ordered(name: str) -> Any:
    """Return the rule of a function that returns reordered entries along an axis and their positions."""
    function = getattr(torch, name)

    def rule(x: Any, *args: Any, **kwargs: Any) -> Any:
        value, indices = function(x.value, *args, **kwargs)
        dim = kwargs.get("dim", next((a for a in args[int(name == "topk") :] if type(a) is int), -1))
        return getattr(torch.return_types, name)((_chosen(x, value, indices, dim, True), indices))

    return rule


for _owner in (torch, Tensor):
    RULES[_owner.sort], RULES[_owner.topk] = _ordered("sort"), _ordered("topk")
RULES[torch.msort] = RULES[Tensor.msort] = lambda x: torch.sort(x, dim=0)[0]
