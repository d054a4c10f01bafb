"""Reductions: norms, variances, products, softmax."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from dudx.engines.taylor.jet import Jet
from dudx.engines.taylor.rule_helpers import is_jet
from dudx.engines.taylor.rule_table import NotCoveredError, taylor_rule


@taylor_rule(torch.norm, Tensor.norm)
def norm(x: Any, p: Any = "fro", dim: Any = None, keepdim: bool = False, out: Any = None, dtype: Any = None) -> Jet:
    if out is not None or (dim is not None and p in ("fro", "nuc") and not isinstance(dim, int) and p == "nuc"):
        raise NotCoveredError
    return vector_norm(x, 2 if p in ("fro", None) else p, dim, keepdim, dtype=dtype)


@taylor_rule(torch.linalg.norm)
def linalg_norm(
    x: Any, ord: Any = None, dim: Any = None, keepdim: bool = False, *, out: Any = None, dtype: Any = None
) -> Jet:
    of_matrices = (dim is None and x.ndim == 2) or (isinstance(dim, tuple | list) and len(dim) == 2)
    if ord is not None and of_matrices and ord != "fro":
        raise NotCoveredError
    return vector_norm(x, 2 if ord in (None, "fro") else ord, dim, keepdim, dtype=dtype, out=out)


@taylor_rule(torch.linalg.vector_norm)
def vector_norm(
    x: Any, ord: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None, out: Any = None
) -> Any:
    if not is_jet(x) or x.dtype.is_complex or out is not None or dtype is not None or isinstance(ord, str) or not ord:
        raise NotCoveredError
    axes = tuple(range(x.ndim)) if dim is None else dim
    if ord == 2:
        return torch.sqrt((x * x).sum(axes, keepdim=keepdim))  # type: ignore[return-value]
    if ord > 0 and ord % 2 == 0 and ord != math.inf:  # smooth at 0, unlike |x|
        return (x ** int(ord)).sum(axes, keepdim=keepdim) ** (1 / ord)  # type: ignore[return-value]
    size = torch.abs(x)
    if abs(ord) == math.inf:
        return torch.amax(size, axes, keepdim) if ord > 0 else torch.amin(size, axes, keepdim)  # type: ignore[return-value]
    if ord == 1:
        return size.sum(axes, keepdim=keepdim)  # type: ignore[return-value]
    return (size**ord).sum(axes, keepdim=keepdim) ** (1 / ord)  # type: ignore[return-value]


@taylor_rule(torch.var, Tensor.var)
def var(
    x: Any, dim: Any = None, unbiased: bool = True, keepdim: bool = False, *, correction: float | None = None
) -> Jet:
    if x.dtype.is_complex or isinstance(dim, bool):
        raise NotCoveredError
    axes = tuple(range(x.ndim)) if dim is None else dim
    centred = x - x.mean(axes, keepdim=True)
    total = (centred * centred).sum(axes, keepdim=keepdim)
    count = x.numel() / math.prod(total.shape if dim is not None else [1])
    return total / (count - (int(unbiased) if correction is None else correction))


@taylor_rule(torch.std, Tensor.std)
def std(*args: Any, **kwargs: Any) -> Jet:
    return torch.sqrt(var(*args, **kwargs))  # type: ignore[arg-type,return-value]


@taylor_rule(torch.prod, Tensor.prod)
def prod(x: Any, dim: int | None = None, keepdim: bool = False, *, dtype: Any = None) -> Jet:
    if dtype is not None:
        raise NotCoveredError
    factors = x.flatten() if dim is None else x
    total = _multiplied(list(factors.unbind(0 if dim is None else dim)))
    return total.unsqueeze(dim) if keepdim and dim is not None else total


def _multiplied(factors: list[Any]) -> Any:
    """Multiply in pairs, so that each of many factors passes few products."""
    while len(factors) > 1:
        pairs = [a * b for a, b in zip(factors[::2], factors[1::2], strict=False)]
        factors = pairs + factors[2 * len(pairs) :]
    return factors[0]


@taylor_rule(torch.softmax, Tensor.softmax, F.softmax)
def softmax(x: Any, dim: int | None = -1, dtype: torch.dtype | None = None, _stacklevel: int = 3) -> Jet:
    if dtype is not None or dim is None:
        raise NotCoveredError
    # torch.sub, since torch.compile turns a minus sign into a function that has no rule.
    weights = torch.exp(torch.sub(x, x.value.detach().amax(dim, keepdim=True)))
    return weights / weights.sum(dim, keepdim=True)  # type: ignore[operator,union-attr]


@taylor_rule(torch.logsumexp, Tensor.logsumexp)
def logsumexp(x: Any, dim: Any, keepdim: bool = False, *, out: Any = None) -> Any:
    if out is not None:
        raise NotCoveredError
    largest = x.value.detach().amax(dim, keepdim=True)
    total = torch.exp(torch.sub(x, largest)).sum(dim, keepdim=keepdim)
    return torch.log(total) + (largest if keepdim else largest.squeeze(dim))


@taylor_rule(torch.log_softmax, Tensor.log_softmax, F.log_softmax)
def log_softmax(x: Any, dim: int | None = None, _stacklevel: int = 3, dtype: torch.dtype | None = None) -> Any:
    if not isinstance(dim, int) or not isinstance(_stacklevel, int) or dtype is not None:
        raise NotCoveredError
    return torch.sub(x, logsumexp(x, dim, keepdim=True))


@taylor_rule(F.softmin)
def softmin(x: Any, dim: int | None = None, _stacklevel: int = 3, dtype: torch.dtype | None = None) -> Jet:
    return softmax(-x, dim, dtype)


@taylor_rule(F.normalize)
def normalize(x: Any, p: float = 2.0, dim: int = 1, eps: float = 1e-12, out: Any = None) -> Jet:
    if p != 2 or out is not None or x.dtype.is_complex:
        raise NotCoveredError
    # Torch divides by eps where the length is smaller, so that zero stays zero.
    squares = (x * x).sum(dim, keepdim=True)
    small = squares.value <= eps**2
    inverse = torch.rsqrt(torch.where(small, torch.ones_like(squares), squares))
    return x * torch.where(small, torch.full_like(squares, 1 / eps), inverse)


@taylor_rule(F.cosine_similarity)
def cosine_similarity(a: Any, b: Any, dim: int = 1, eps: float = 1e-8) -> Jet:
    lengths = [torch.clamp_min(torch.linalg.vector_norm(side, 2, dim, keepdim=True), eps) for side in (a, b)]
    return ((a / lengths[0]) * (b / lengths[1])).sum(dim)  # type: ignore[return-value]
