"""Replacement of fused kernels by kernels that automatic differentiation handles to any order."""

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
    """Return a context in which attention and normalisation run in elementary arithmetic.

    Fused attention has no second derivative; fused normalisations have silently wrong ones (see `fused_kernels`).

    Args:
        tracking: let normalisations by the batch update their running statistics.
    """
    return contextlib.nullcontext() if torch.compiler.is_compiling() else WrittenOut(tracking)


class SlowAttention(TorchFunctionMode):
    """Keep `nn.MultiheadAttention` and transformer layers from their fused fast path.

    They use it only if no mode is active, so that any mode is enough. Torch's own switch would affect all threads.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return called(func, args, kwargs or {})


def called(function: Any, args: Any, kwargs: Any) -> Any:
    """Call a torch function; on jets through their own dispatch, since methods of Tensor reject other classes."""
    for given in args:
        if is_jet(given):
            if modes_active():
                return handle_torch_function(function, (given,), *args, **kwargs)
            return given.__torch_function__(function, (), args, kwargs)
    return function(*args, **kwargs)


class WrittenOut(TorchFunctionMode):
    """Mode that writes normalisations and attention out in elementary arithmetic.

    Args:
        tracking: let batch norm update its running statistics.
    """

    def __init__(self, tracking: bool = True):
        super().__init__()
        self.tracking = tracking
        #: True once a batch norm with running statistics has run.
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
        if not training:  # an affine map, for which the fused kernel is right
            return F.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)
        self.tracked = self.tracked or running_mean is not None
        running_mean, running_var = (running_mean, running_var) if self.tracking else (None, None)
        return norm_layers.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)


_ATTENTION = inspect.signature(F.multi_head_attention_forward)


def _multi_head_attention(*args: Any, **kwargs: Any) -> Any:
    """Run `F.multi_head_attention_forward` with weights requested, for which torch uses no fused kernel."""
    given = _ATTENTION.bind(*args, **kwargs)
    given.apply_defaults()
    named = given.arguments
    if is_jet(named["query"]) or named["need_weights"]:
        return called(F.multi_head_attention_forward, args, kwargs)
    if named["is_causal"] and named["key_padding_mask"] is None:  # as in torch, it overrides the mask
        later = torch.ones_like(named["attn_mask"], dtype=torch.bool).triu(1)
        named = {**named, "attn_mask": later, "is_causal": False}
    attended, _ = F.multi_head_attention_forward(**{**named, "need_weights": True})
    return attended, None


def _attention(query: Any, *args: Any, **kwargs: Any) -> Any:
    """Run `F.scaled_dot_product_attention`; with dropout or grouped queries by torch's own kernel."""
    written_out = (
        inspect.signature(attention_layers.scaled_dot_product_attention).bind(query, *args, **kwargs).arguments
    )
    if is_jet(query) or written_out.get("dropout_p") or written_out.get("enable_gqa"):
        return called(F.scaled_dot_product_attention, (query, *args), kwargs)
    return attention_layers.scaled_dot_product_attention(**written_out)


def _native_layer_norm(x: Any, shape: Any, weight: Any, bias: Any, eps: float) -> Any:
    """Run `torch.native_layer_norm`, which also returns the mean and the inverse deviation."""
    axes = tuple(range(-len(shape), 0))
    mean, variance = x.mean(axes, keepdim=True), x.var(axes, correction=0, keepdim=True)
    return norm_layers.layer_norm(x, shape, weight, bias, eps), mean, torch.rsqrt(variance + eps)


def is_jet(value: object) -> bool:
    """Return True for an object that implements torch functions without being a tensor."""
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
