"""Layers on jets, written in terms of functions that have rules, as a person would write them on tensors."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from dudx.engines.taylor.jet import RULES, Jet
from dudx.engines.taylor.rules.linear import is_jet, linear, taylor_rule
from dudx.errors import UnsupportedError
from dudx.layers import attention, norms
from dudx.private_torch import may_be_packed

taylor_rule(F.layer_norm, torch.layer_norm)(norms.layer_norm)
taylor_rule(F.group_norm, torch.group_norm)(norms.group_norm)
taylor_rule(F.rms_norm, torch.rms_norm)(norms.rms_norm)
taylor_rule(F.instance_norm)(norms.instance_norm)
taylor_rule(torch.instance_norm)(norms.in_torch_order(norms.instance_norm))
taylor_rule(F.scaled_dot_product_attention)(attention.scaled_dot_product_attention)


@taylor_rule(F.multi_head_attention_forward)
def multi_head_attention(*args: Any, **kwargs: Any) -> tuple[Jet, Jet | None]:
    return attention.multi_head_attention(attention.attended, *args, **kwargs)


@taylor_rule(F.batch_norm)
def batch_norm(
    x: Any, running_mean: Any, running_var: Any, weight: Any = None, bias: Any = None, training: bool = False,
    momentum: float = 0.1, eps: float = 1e-5,
) -> Jet:  # fmt: skip
    if training or running_mean is None or running_var is None:
        raise UnsupportedError(
            "Taylor differentiates each sample by itself, and batch norm in training mode mixes samples; use "
            "dudx.isolate(model, x) as the model, or model.eval()."
        )
    return norms.batch_norm(x, running_mean, running_var, weight, bias, False, momentum, eps)


taylor_rule(torch.batch_norm)(norms.in_torch_order(batch_norm))


@taylor_rule(torch.softmax, Tensor.softmax, F.softmax)
def softmax(x: Any, dim: int = -1, dtype: torch.dtype | None = None, _stacklevel: int = 3) -> Jet:
    # torch.sub rather than a minus sign, which torch.compile turns into a function it does not find again.
    weights = torch.exp(torch.sub(x, x.value.detach().amax(dim, keepdim=True)))
    return weights / weights.sum(dim, keepdim=True)  # type: ignore[operator,union-attr]


@taylor_rule(torch.logsumexp, Tensor.logsumexp)
def logsumexp(x: Any, dim: Any, keepdim: bool = False) -> Any:
    largest = x.value.detach().amax(dim, keepdim=True)
    total = torch.exp(torch.sub(x, largest)).sum(dim, keepdim=keepdim)
    return torch.log(total) + (largest if keepdim else largest.squeeze(dim))


@taylor_rule(torch.norm, Tensor.norm, torch.linalg.vector_norm)
def norm(
    x: Any, p: Any = 2, dim: Any = None, keepdim: bool = False, out: Any = None, dtype: Any = None, ord: Any = None
) -> Jet:
    if (p if ord is None else ord) not in (2, "fro", None) or out is not None or dtype is not None:
        raise UnsupportedError("Taylor knows the Euclidean length among the norms; use dudx.AD() for others.")
    squares = x * x
    return torch.sqrt(squares.sum() if dim is None else squares.sum(dim, keepdim=keepdim))  # type: ignore[return-value]


@taylor_rule(torch.var, Tensor.var)
def var(
    x: Any, dim: Any = None, unbiased: bool = True, keepdim: bool = False, *, correction: float | None = None
) -> Jet:
    axes = tuple(range(x.ndim)) if dim is None else dim
    centred = x - x.mean(axes, keepdim=True)
    total = (centred * centred).sum(axes, keepdim=keepdim)
    count = x.numel() / math.prod(total.shape if dim is not None else [1])
    return total / (count - (int(unbiased) if correction is None else correction))


@taylor_rule(torch.std, Tensor.std)
def std(*args: Any, **kwargs: Any) -> Jet:
    return torch.sqrt(var(*args, **kwargs))  # type: ignore[arg-type,return-value]


@taylor_rule(F.normalize)
def normalize(x: Any, p: float = 2.0, dim: int = 1, eps: float = 1e-12, out: Any = None) -> Jet:
    if p != 2 or out is not None:
        raise UnsupportedError("Taylor knows normalize for the Euclidean length; use dudx.AD() for others.")
    # Where the length is below eps torch divides by eps instead, so that zero stays zero.
    squares = (x * x).sum(dim, keepdim=True)
    small = squares.value <= eps**2
    inverse = torch.rsqrt(torch.where(small, torch.ones_like(squares), squares))
    return x * torch.where(small, torch.full_like(squares, 1 / eps), inverse)


@taylor_rule(F.glu)
def glu(x: Any, dim: int = -1) -> Jet:
    value, gate = x.chunk(2, dim)
    return value * torch.sigmoid(gate)


# Tokens of jets are not packed.
taylor_rule(may_be_packed)(lambda tokens, mask: False)


def _convolution(function: Callable[..., Tensor]) -> Callable[..., Jet]:
    """A convolution with a constant kernel is linear, and a bias moves only the value."""

    def rule(x: Jet, weight: Tensor, bias: Tensor | None = None, *args: Any, **kwargs: Any) -> Jet:
        if is_jet(weight) or is_jet(bias):
            raise UnsupportedError("Taylor knows convolutions with constant kernels; use dudx.AD() for others.")
        out = linear(lambda t: function(t, weight, None, *args, **kwargs))(x)
        return out if bias is None else out + norms.by_channel(out, bias)

    return rule


for _function in (F.conv1d, F.conv2d, F.conv3d):
    RULES[_function] = _convolution(_function)
