"""Kernels that can be differentiated as often as one likes, for the engines that differentiate automatically."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode, handle_torch_function

from dudx.backend import attention_layers, norm_layers
from dudx.backend.active_modes import modes_active


def differentiable_kernels(tracking: bool = True) -> AbstractContextManager[Any]:
    """Run attention and normalisation on kernels that any number of derivatives can be taken of.

    The fused attention kernels refuse a second derivative, the fused normalisations get some silently wrong.

    Args:
        tracking: let normalisations by the batch update their running statistics.
    """
    return contextlib.nullcontext() if torch.compiler.is_compiling() else WrittenOut(tracking)


class SlowAttention(TorchFunctionMode):
    """Keeps `nn.MultiheadAttention` and the transformer layers from kernels that cannot be looked into.

    They take these only where no mode looks on, so that looking on is enough; torch's own switch would be set for
    every thread.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return called(func, args, kwargs or {})


def called(function: Any, args: Any, kwargs: Any) -> Any:
    """A torch function as it is without this mode; methods of Tensor would refuse what only follows torch, as jets."""
    for given in args:
        if is_jet(given):
            if modes_active():
                return handle_torch_function(function, (given,), *args, **kwargs)
            return given.__torch_function__(function, (), args, kwargs)
    return function(*args, **kwargs)


class WrittenOut(TorchFunctionMode):
    """Normalisations and attention in terms of arithmetic; all else as always.

    Args:
        tracking: whether batch norm updates its running statistics.
    """

    def __init__(self, tracking: bool = True):
        super().__init__()
        self.tracking = tracking
        #: Whether batch norm was given statistics to update.
        self.tracked = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (F.batch_norm, torch.batch_norm):
            norm = self._batch_norm if func is F.batch_norm else norm_layers.in_torch_order(self._batch_norm)
            return norm(*args, **(kwargs or {}))
        written_out = _WRITTEN_OUT.get(func)
        return called(func, args, kwargs or {}) if written_out is None else written_out(*args, **(kwargs or {}))

    def _batch_norm(
        self, input: Any, running_mean: Any, running_var: Any, weight: Any = None, bias: Any = None,
        training: bool = False, momentum: float = 0.1, eps: float = 1e-5,
    ) -> Any:  # fmt: skip
        if not training:  # an affine map, which the fused kernel gets right
            return F.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)
        self.tracked = self.tracked or running_mean is not None
        running_mean, running_var = (running_mean, running_var) if self.tracking else (None, None)
        return norm_layers.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)


_ATTENTION = inspect.signature(F.multi_head_attention_forward)


def _multi_head_attention(*args: Any, **kwargs: Any) -> Any:
    """What `nn.MultiheadAttention` calls: torch takes no fused kernel where the weights are asked for."""
    given = _ATTENTION.bind(*args, **kwargs)
    given.apply_defaults()
    named = given.arguments
    if is_jet(named["query"]) or named["need_weights"]:
        return called(F.multi_head_attention_forward, args, kwargs)
    if named["is_causal"] and named["key_padding_mask"] is None:  # as in torch, this hint counts more than the mask
        later = torch.ones_like(named["attn_mask"], dtype=torch.bool).triu(1)
        named = {**named, "attn_mask": later, "is_causal": False}
    attended, _ = F.multi_head_attention_forward(**{**named, "need_weights": True})
    return attended, None


def _attention(query: Any, *args: Any, **kwargs: Any) -> Any:
    """What `F.scaled_dot_product_attention` computes; with dropout or fewer heads it is left to torch."""
    written_out = (
        inspect.signature(attention_layers.scaled_dot_product_attention).bind(query, *args, **kwargs).arguments
    )
    if is_jet(query) or written_out.get("dropout_p") or written_out.get("enable_gqa"):
        return called(F.scaled_dot_product_attention, (query, *args), kwargs)
    return attention_layers.scaled_dot_product_attention(**written_out)


def _native_layer_norm(x: Any, shape: Any, weight: Any, bias: Any, eps: float) -> Any:
    """The kernel called by its own name, which also returns the mean and the inverse deviation."""
    axes = tuple(range(-len(shape), 0))
    mean, variance = x.mean(axes, keepdim=True), x.var(axes, correction=0, keepdim=True)
    return norm_layers.layer_norm(x, shape, weight, bias, eps), mean, torch.rsqrt(variance + eps)


def is_jet(value: object) -> bool:
    """Whether it follows torch without being a tensor."""
    return hasattr(value, "__torch_function__") and not isinstance(value, Tensor)


_WRITTEN_OUT: dict[Any, Callable[..., Any]] = {
    F.layer_norm: norm_layers.layer_norm,
    torch.layer_norm: norm_layers.layer_norm,
    F.instance_norm: norm_layers.instance_norm,
    torch.instance_norm: norm_layers.in_torch_order(norm_layers.instance_norm),
    torch.native_layer_norm: _native_layer_norm,
    F.multi_head_attention_forward: _multi_head_attention,
    F.scaled_dot_product_attention: _attention,
}
