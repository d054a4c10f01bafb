"""Functions that are written in terms of functions with rules."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from dudx.engines.taylor.chain_and_product import compose
from dudx.engines.taylor.jet import Jet
from dudx.engines.taylor.rule_helpers import is_jet, written
from dudx.engines.taylor.rule_table import RULES, NotCoveredError, taylor_rule
from dudx.engines.taylor.rules.linear_maps import linear
from dudx.engines.taylor.rules.matrix_products import bilinear


@taylor_rule(torch.atan2, torch.arctan2, Tensor.atan2, Tensor.arctan2)
def atan2(y: Any, x: Any) -> Jet:
    """Compute the angle of the values plus the arctangent of the rotation from there, which is 0 at the values."""
    y0, x0 = (side.value if is_jet(side) else side for side in (y, x))
    turned = (y * x0 - x * y0) / (x * x0 + y * y0)
    slopes: list[Any] = [torch.atan2(y0, x0)]
    one = torch.ones_like(turned.value)
    for order in range(1, turned.layout.top + 1):  # derivatives of the arctangent at 0: 1, 0, -2, 0, 24, …
        sign = (-1) ** (order // 2)
        slopes.append(one * (sign * math.factorial(order - 1)) if order % 2 else 0 * one)
    return compose(turned, slopes)


@taylor_rule(torch.lerp, Tensor.lerp)
def lerp(a: Any, b: Any, weight: Any) -> Any:
    return a + weight * (b - a)


@taylor_rule(torch.addcmul, Tensor.addcmul)
def addcmul(x: Any, a: Any, b: Any, *, value: float = 1) -> Any:
    return x + value * (a * b)


@taylor_rule(torch.addcdiv, Tensor.addcdiv)
def addcdiv(x: Any, a: Any, b: Any, *, value: float = 1) -> Any:
    return x + value * (a / b)


@taylor_rule(torch.logaddexp, Tensor.logaddexp)
def logaddexp(a: Any, b: Any) -> Any:
    # Subtract the larger argument, so that neither exponential overflows.
    top = torch.maximum(*(side.value.detach() if is_jet(side) else side.detach() for side in (a, b)))
    return torch.log(torch.exp(a - top) + torch.exp(b - top)) + top


@taylor_rule(torch.masked_fill, Tensor.masked_fill)
def masked_fill(x: Any, mask: Any, value: Any) -> Any:
    if not is_jet(x) or is_jet(value) or is_jet(mask):
        raise NotCoveredError
    streams = x.streams.masked_fill(mask, 0) if mask.ndim <= x.ndim else x.full().masked_fill(mask, 0)
    return Jet(x.layout, x.value.masked_fill(mask, value), streams)


RULES[torch.dot] = RULES[Tensor.dot] = RULES[torch.inner] = RULES[Tensor.inner] = bilinear(torch.inner)
RULES[torch.kron] = RULES[Tensor.kron] = bilinear(torch.kron)
RULES[torch.ger] = RULES[Tensor.ger] = RULES[Tensor.outer] = lambda a, b: a.unsqueeze(1) * b.unsqueeze(0)


@taylor_rule(F.bilinear)
def bilinear_layer(a: Any, b: Any, weight: Any, bias: Any = None) -> Any:
    if is_jet(weight) or is_jet(bias):
        raise NotCoveredError
    out = bilinear(lambda x, y: F.bilinear(x, y, weight))(a, b)
    return out if bias is None else out + bias


@taylor_rule(torch.cross, Tensor.cross, torch.linalg.cross)
def cross(a: Any, b: Any, dim: int | None = None) -> Any:
    if dim is None:
        raise NotCoveredError
    return bilinear(lambda x, y: torch.linalg.cross(x, y, dim=dim))(a, b)


@taylor_rule(torch.linalg.vecdot, torch.vdot)
def vecdot(a: Any, b: Any, *, dim: int = -1) -> Any:
    return (torch.conj(a) * b).sum(dim)


@taylor_rule(torch.tensordot)
def tensordot(a: Any, b: Any, dims: Any = 2, out: Any = None) -> Any:
    if out is not None:
        raise NotCoveredError
    return bilinear(lambda x, y: torch.tensordot(x, y, dims))(a, b)


@taylor_rule(torch.addmv, Tensor.addmv)
def addmv(c: Any, a: Any, b: Any, *, beta: float = 1, alpha: float = 1) -> Any:
    return beta * c + alpha * torch.matmul(a, b)


@taylor_rule(torch.frac, Tensor.frac)
def frac(x: Any) -> Any:
    return x - torch.trunc(x)


@taylor_rule(torch.fmod, Tensor.fmod)
def fmod(a: Any, b: Any) -> Any:
    first, second = (side.value if is_jet(side) else side for side in (a, b))
    out = a - b * torch.div(first, second, rounding_mode="trunc")
    return Jet(out.layout, torch.fmod(first, second), out.streams)


@taylor_rule(F.embedding)
def embedding(x: Any, weight: Any, *args: Any, **kwargs: Any) -> Any:
    """Return rows of a table that is a jet; the row numbers are constant."""
    if is_jet(x):
        raise NotCoveredError
    return linear(lambda table: F.embedding(x, table, *args, **kwargs))(weight)


@taylor_rule(F.hardsigmoid)
def hardsigmoid(x: Any, inplace: bool = False) -> Any:
    return written(x, torch.clamp(x / 6 + 0.5, 0, 1), inplace)  # type: ignore[arg-type]


@taylor_rule(torch.copysign, Tensor.copysign)
def copysign(a: Any, b: Any) -> Any:
    """Return |a| with the sign of b, which is piecewise constant."""
    if not is_jet(a):
        raise NotCoveredError
    return torch.abs(a) * torch.copysign(torch.ones_like(a.value), b.value if is_jet(b) else b)


@taylor_rule(torch.logcumsumexp, Tensor.logcumsumexp)
def logcumsumexp(x: Any, dim: int) -> Any:
    top = x.value.detach().amax(dim, keepdim=True)
    return torch.log(torch.cumsum(torch.exp(x - top), dim)) + top


@taylor_rule(torch.cdist)
def cdist(a: Any, b: Any, p: float = 2.0, compute_mode: str = "") -> Any:
    return torch.linalg.vector_norm(a.unsqueeze(-2) - b.unsqueeze(-3), p, dim=-1)


@taylor_rule(torch.vander)
def vander(x: Any, N: int | None = None, increasing: bool = False) -> Any:
    count = len(x) if N is None else N
    powers = torch.arange(count, device=x.device)
    return x.unsqueeze(-1) ** (powers if increasing else powers.flip(0))
