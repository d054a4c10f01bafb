"""Sums and elementwise products. Axes that broadcasting adds come after the axis of streams."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from dudx.engines.taylor.chain_and_product import product
from dudx.engines.taylor.jet import Jet
from dudx.engines.taylor.rule_helpers import is_jet, written
from dudx.engines.taylor.rule_table import taylor_rule


@taylor_rule(torch.add, Tensor.add, Tensor.__add__, Tensor.__radd__)
def add(a: Any, b: Any, *, alpha: float = 1) -> Jet:
    b = b if alpha == 1 else alpha * b
    if is_jet(a) and is_jet(b):
        value = a.value + b.value
        return Jet(a.layout, value, aligned(a, value) + aligned(b, value))
    jet, other = (a, b) if is_jet(a) else (b, a)
    value = jet.value + other
    return Jet(jet.layout, value, aligned(jet, value))


def aligned(jet: Jet, like: Tensor) -> Tensor:
    """Return the streams with the dtype and the number of axes of a result, which broadcasting may have increased."""
    missing = like.ndim - jet.ndim
    streams = jet.streams
    if streams.dtype != like.dtype:
        streams = streams.to(like.dtype)
    return streams.reshape(len(streams), *[1] * missing, *streams.shape[1:]) if missing > 0 else streams


@taylor_rule(torch.sub, torch.subtract, Tensor.sub, Tensor.__sub__)
def sub(a: Any, b: Any, *, alpha: float = 1) -> Jet:
    b = b if alpha == 1 else alpha * b
    return add(a, -b)


@taylor_rule(torch.rsub, Tensor.__rsub__)
def rsub(a: Any, b: Any) -> Jet:
    return add(b, -a)


@taylor_rule(torch.mul, torch.multiply, Tensor.mul, Tensor.__mul__, Tensor.__rmul__)
def mul(a: Any, b: Any) -> Jet:
    if is_jet(a) and is_jet(b):
        if a.ndim != b.ndim:
            a, b = (with_axes(a, b.ndim), with_axes(b, a.ndim))
        return product(torch.mul, a, b, lambda x, y, stacked: x * y)
    jet, other = (a, b) if is_jet(a) else (b, a)
    value = jet.value * other
    return Jet(jet.layout, value, aligned(jet, value) * other)


def with_axes(jet: Jet, ndim: int) -> Jet:
    """Return the jet with leading axes of length 1, as broadcasting adds them."""
    missing = ndim - jet.ndim
    if missing <= 0:
        return jet
    return Jet(jet.layout, jet.value.reshape(*[1] * missing, *jet.shape), aligned(jet, jet.value.new_empty([1] * ndim)))


@taylor_rule(F.dropout, torch.dropout)
def dropout(x: Jet, p: float = 0.5, training: bool = True, inplace: bool = False) -> Jet:
    if not training or p == 0:
        return x
    return written(x, mul(x, F.dropout(torch.ones_like(x.value), p, training)), inplace)
