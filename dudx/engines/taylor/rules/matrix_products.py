"""Matrix products and linear layers. A layer is one matrix product for all streams."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from dudx.engines.taylor.chain_and_product import product
from dudx.engines.taylor.jet import Jet
from dudx.engines.taylor.rule_helpers import is_jet
from dudx.engines.taylor.rule_table import RULES, NotCoveredError, taylor_rule
from dudx.engines.taylor.rules.linear_maps import linear
from dudx.errors import UnsupportedError

#: A layer is narrow if it has this many times more inputs than outputs.
_NARROW = 8

#: Layers with fewer activations than this take less time than a kernel launch, so value and streams share one product.
#: (Width 24 gains a tenth of a step by it; width 128 at 1024 points would lose as much.)
_SMALL = 2**15


def _small(x: Jet) -> bool:
    return x.value.numel() <= _SMALL and all(part.shape[1:] == x.value.shape for part in x.parts)


@taylor_rule(F.linear)
def linear_layer(x: Jet, weight: Any, bias: Any = None) -> Jet:
    if is_jet(weight) or is_jet(bias):
        out = matmul(x, weight.transpose(-1, -2))
        return out if bias is None else out + bias
    if torch.compiler.is_compiling() and _small(x):
        # In a compiled graph the preceding operations write into the stack directly. (torch.stack, since torch.cat
        # fixes open sizes inside vmap, as for ensembles.)
        stack = F.linear(torch.stack([x.value, *(stream for part in x.parts for stream in part)]), weight)
        return Jet(x.layout, stack[0] if bias is None else stack[0] + bias, stack[1:])
    # A last layer is narrow and cheap. Often one of its streams is needed: then the others are neither joined nor
    # differentiated.
    parts = x.parts if _NARROW * weight.shape[0] <= weight.shape[-1] else (x.streams,)
    # A part may be broadcast over features, which the product sums over.
    wide = [part.expand(*part.shape[:-1], x.shape[-1]) for part in parts]
    return Jet(x.layout, F.linear(x.value, weight, bias), *(F.linear(part, weight) for part in wide))


def bilinear(function: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Any, Any], Jet]:
    """Return the rule of a bilinear function of two arguments."""

    def stacked(x: Tensor, y: Tensor, which: int) -> Tensor:
        return torch.func.vmap(function, in_dims=(0, None) if which == 0 else (None, 0))(x, y)

    def rule(a: Any, b: Any) -> Jet:
        if is_jet(a) and is_jet(b):
            a, b = (Jet(j.layout, j.value, j.full()) for j in (a, b))
            return product(function, a, b, stacked)
        if is_jet(a):
            return Jet(a.layout, function(a.value, b), stacked(a.full(), b, 0))
        return Jet(b.layout, function(a, b.value), stacked(a, b.full(), 1))

    return rule


matmul = bilinear(torch.matmul)
for _matrix_product in (
    torch.matmul,
    torch.mm,
    torch.bmm,
    torch.mv,
    Tensor.mm,
    Tensor.bmm,
    Tensor.__matmul__,
):
    RULES[_matrix_product] = matmul
RULES[Tensor.__rmatmul__] = lambda a, b: matmul(b, a)


@taylor_rule(Tensor.matmul)
def matmul_method(a: Any, b: Any) -> Jet:
    # By default torch.compile calls weight.matmul(x) for x @ weight as for weight @ x, and only shapes tell.
    # (With `reversed_matmul` of backend/compiler.py it calls __rmatmul__ for x @ weight.)
    if torch.compiler.is_compiling() and not is_jet(a):
        if _multiply(a, b) and _multiply(b, a):
            raise UnsupportedError(
                "torch.compile may mistake the order of weight @ x for jets; write torch.matmul(weight, x)."
            )
        return matmul(a, b) if _multiply(a, b) else matmul(b, a)
    return matmul(a, b)


def _multiply(a: Any, b: Any) -> bool:
    """Return True if two matrices can be multiplied in this order."""
    return a.shape[-1] == b.shape[-2 if b.ndim > 1 else 0]


@taylor_rule(torch.addmm, Tensor.addmm, torch.baddbmm, Tensor.baddbmm)
def addmm(c: Any, a: Any, b: Any, *, beta: float = 1, alpha: float = 1) -> Jet:
    out = matmul(a, b) if is_jet(a) or is_jet(b) else a @ b
    return alpha * out + beta * c


@taylor_rule(torch.outer)
def outer(a: Any, b: Any) -> Jet:
    return a.unsqueeze(1) * b.unsqueeze(0)


@taylor_rule(torch.einsum)
def einsum(equation: str, *operands: Any) -> Jet:
    factors = list(operands[0] if len(operands) == 1 and isinstance(operands[0], tuple | list) else operands)
    if len(factors) == 1:
        return linear(lambda x: torch.einsum(equation, x))(factors[0])
    if len(factors) == 2:
        return bilinear(lambda x, y: torch.einsum(equation, x, y))(*factors)
    raise NotCoveredError


@taylor_rule(torch.det, Tensor.det, torch.linalg.det)
def det(a: Any) -> Any:
    """Expand small determinants: torch's derivatives divide by them, and are not finite for singular matrices."""
    if a.shape[-1] == 2:
        return a[..., 0, 0] * a[..., 1, 1] - a[..., 0, 1] * a[..., 1, 0]
    if a.shape[-1] == 3:
        rows = (a[..., 0, :], a[..., 1, :], a[..., 2, :])
        return (rows[0] * torch.linalg.cross(rows[1], rows[2], dim=-1)).sum(-1)
    raise NotCoveredError
