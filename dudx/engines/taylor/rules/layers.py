"""Layers on jets, written in terms of functions that have rules, as a person would write them on tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from dudx.engines.taylor.jet import RULES, Jet
from dudx.engines.taylor.rules.linear import is_jet, linear, taylor_rule
from dudx.errors import UnsupportedError
from dudx.layers import attention_weights, multi_head_attention


@taylor_rule(torch.softmax, Tensor.softmax, F.softmax)
def softmax(x: Any, dim: int = -1, dtype: torch.dtype | None = None, _stacklevel: int = 3) -> Jet:
    # torch.sub rather than a minus sign, which torch.compile turns into a function it does not find again.
    weights = torch.exp(torch.sub(x, x.value.detach().amax(dim, keepdim=True)))
    return weights / weights.sum(dim, keepdim=True)  # type: ignore[operator,union-attr]


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


@taylor_rule(F.layer_norm, torch.layer_norm)
def layer_norm(
    x: Any, normalized_shape: Sequence[int], weight: Any = None, bias: Any = None, eps: float = 1e-5, *rest: Any
) -> Jet:
    axes = tuple(range(-len(normalized_shape), 0))
    centred = x - x.mean(axes, keepdim=True)
    out = centred * torch.rsqrt((centred * centred).mean(axes, keepdim=True) + eps)
    out = out if weight is None else out * weight
    return out if bias is None else out + bias


def _channels(x: Any, value: Any) -> Any:
    """A weight for each channel, shaped to meet x of shape (B, channels, …)."""
    return value.reshape(1, -1, *[1] * (x.ndim - 2))


@taylor_rule(F.group_norm, torch.group_norm)
def group_norm(x: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5, *rest: Any) -> Jet:
    grouped = x.reshape(x.shape[0], num_groups, -1)
    out = layer_norm(grouped, (grouped.shape[-1],), eps=eps).reshape(*x.shape)
    out = out if weight is None else out * _channels(x, weight)
    return out if bias is None else out + _channels(x, bias)


@taylor_rule(F.rms_norm, torch.rms_norm)
def rms_norm(x: Any, normalized_shape: Sequence[int], weight: Any = None, eps: float | None = None) -> Jet:
    axes = tuple(range(-len(normalized_shape), 0))
    eps = torch.finfo(x.dtype).eps if eps is None else eps
    out = x * torch.rsqrt((x * x).mean(axes, keepdim=True) + eps)
    return out if weight is None else out * weight


@taylor_rule(F.instance_norm)
def instance_norm(
    x: Any,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Any = None,
    bias: Any = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Jet:
    if not use_input_stats:
        return batch_norm(x, running_mean, running_var, weight, bias, False, momentum, eps)
    return group_norm(x, x.shape[1], weight, bias, eps)


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


def _convolution(function: Callable[..., Tensor]) -> Callable[..., Jet]:
    """A convolution with a constant kernel is linear, and a bias moves only the value."""

    def rule(x: Jet, weight: Tensor, bias: Tensor | None = None, *args: Any, **kwargs: Any) -> Jet:
        if is_jet(weight) or is_jet(bias):
            raise UnsupportedError("Taylor knows convolutions with constant kernels; use dudx.AD() for others.")
        out = linear(lambda t: function(t, weight, None, *args, **kwargs))(x)
        return out if bias is None else out + _channels(out, bias)

    return rule


for _function in (F.conv1d, F.conv2d, F.conv3d):
    RULES[_function] = _convolution(_function)


@taylor_rule(F.batch_norm)
def batch_norm(
    x: Any,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Jet:
    if training or running_mean is None or running_var is None:
        raise UnsupportedError(
            "Taylor differentiates each sample by itself, and batch norm in training mode mixes samples; use "
            "dudx.isolate(model, x) as the model, or model.eval()."
        )
    scale = torch.rsqrt(running_var + eps)
    scale = scale if weight is None else scale * weight
    shift = -running_mean * scale
    shift = shift if bias is None else shift + bias
    return x * _channels(x, scale) + _channels(x, shift)


@taylor_rule(torch.batch_norm)
def torch_batch_norm(
    x: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any, training: bool, momentum: float, eps: float,
    cudnn_enabled: bool,
) -> Jet:  # fmt: skip
    """The same function with its arguments in another order."""
    return batch_norm(x, running_mean, running_var, weight, bias, training, momentum, eps)


@taylor_rule(F.scaled_dot_product_attention)
def attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Jet:
    if dropout_p or enable_gqa:
        raise UnsupportedError(
            "Taylor knows attention without dropout and with as many key heads as query heads; use dudx.AD() for "
            "others."
        )
    return _attended(query, key, value, [] if attn_mask is None else [attn_mask], is_causal, scale)[0]


def _attended(
    query: Any, key: Any, value: Any, masks: Sequence[Any], is_causal: bool, scale: float | None = None
) -> tuple[Any, Any]:
    # torch.compile cannot follow jets through @.
    scores = torch.matmul(query, key.transpose(-2, -1)) * (query.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        masks = [*masks, torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()]
    weights = attention_weights(scores, masks)
    return torch.matmul(weights, value), weights


@taylor_rule(F.multi_head_attention_forward)
def multi_head_attention_on_jets(*args: Any, **kwargs: Any) -> tuple[Jet, Jet | None]:
    return multi_head_attention(_attended, *args, **kwargs)
