"""Normalisation layers in elementary arithmetic, for tensors and jets.

Torch's fused kernels treat mean and deviation as constants when their second derivative is differentiated: third
derivatives, and gradients of a loss that contains second derivatives, are silently wrong. These are right.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F

#: Torch's shape checks before normalisation, so that a written-out layer raises the same errors. Without them, too few
#: values are normalised to NaN.
_verify_batch_size: Callable[[Sequence[int]], None] = getattr(F, "_verify_batch_size", lambda size: None)
_verify_spatial_size: Callable[[Sequence[int]], None] = getattr(F, "_verify_spatial_size", lambda size: None)

_HALF = (torch.float16, torch.bfloat16)


def wide(x: Any) -> Any:
    """Convert half precision to single precision, in which the fused kernels compute too; leave other formats."""
    return x.float() if x.dtype in _HALF else x


def standardised(centred: Any, variance: Any, eps: float, dtype: torch.dtype) -> Any:
    """Divide centred values by the standard deviation and return them in the given format."""
    normal = centred * torch.rsqrt(variance + eps)
    return normal.to(dtype) if normal.dtype != dtype else normal


def scaled(normal: Any, weight: Any, bias: Any) -> Any:
    """Multiply by the weight and add the bias; either may be None."""
    normal = normal if weight is None else normal * weight
    return normal if bias is None else normal + bias


def by_channel(x: Any, value: Any) -> Any:
    """Reshape one number per channel to broadcast with x of shape (B, channels, …)."""
    return None if value is None else value.reshape(1, -1, *[1] * (x.ndim - 2))


def layer_norm(
    input: Any, normalized_shape: Sequence[int], weight: Any = None, bias: Any = None, eps: float = 1e-5, *rest: Any
) -> Any:
    """Compute `F.layer_norm`. `rest` takes the extra argument of `torch.layer_norm`, which chooses a kernel."""
    return scaled(_normal(input, tuple(range(-len(normalized_shape), 0)), eps)[0], weight, bias)


def group_norm(input: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5, *rest: Any) -> Any:
    """Compute `F.group_norm`."""
    grouped = input.reshape(input.shape[0], num_groups, -1)
    normal = _normal(grouped, (-1,), eps)[0].reshape(*input.shape)
    return scaled(normal, by_channel(input, weight), by_channel(input, bias))


def rms_norm(input: Any, normalized_shape: Sequence[int], weight: Any = None, eps: float | None = None) -> Any:
    """Compute `F.rms_norm`."""
    axes = tuple(range(-len(normalized_shape), 0))
    eps = torch.finfo(input.dtype).eps if eps is None else eps
    return scaled(input * torch.rsqrt((input * input).mean(axes, keepdim=True) + eps), weight, None)


def batch_norm(
    input: Any, running_mean: Any, running_var: Any, weight: Any = None, bias: Any = None, training: bool = False,
    momentum: float = 0.1, eps: float = 1e-5,
) -> Any:  # fmt: skip
    """Compute `F.batch_norm`: with statistics of the batch in training mode, otherwise with the running statistics."""
    if not training:
        scale = torch.rsqrt(running_var + eps)
        scale = scale if weight is None else scale * weight
        shift = -running_mean * scale if bias is None else bias - running_mean * scale
        return scaled(input, by_channel(input, scale), by_channel(input, shift))
    _verify_batch_size(input.size())
    return _tracked(input, (0, *range(2, input.ndim)), running_mean, running_var, weight, bias, momentum, eps)


def instance_norm(
    input: Any, running_mean: Any = None, running_var: Any = None, weight: Any = None, bias: Any = None,
    use_input_stats: bool = True, momentum: float = 0.1, eps: float = 1e-5,
) -> Any:  # fmt: skip
    """Compute `F.instance_norm`: with statistics of each sample, or with the running statistics."""
    if not use_input_stats:
        return batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
    _verify_spatial_size(input.size())
    return _tracked(input, tuple(range(2, input.ndim)), running_mean, running_var, weight, bias, momentum, eps)


def in_torch_order(norm: Callable[..., Any]) -> Callable[..., Any]:
    """Adapt a norm to the argument order of `torch.batch_norm` and `torch.instance_norm`: weights before statistics.

    Arguments before the input are passed on unchanged.
    """

    def reordered(*args: Any) -> Any:
        *before, x, weight, bias, mean, variance, of_input, momentum, eps, _ = args
        return norm(*before, x, mean, variance, weight, bias, of_input, momentum, eps)

    return reordered


def _tracked(
    x: Any, axes: Sequence[int], running_mean: Any, running_var: Any, weight: Any, bias: Any, momentum: float,
    eps: float,
) -> Any:  # fmt: skip
    """Normalise over axes, scale each channel and update the running statistics as the fused kernel does."""
    normal, mean, variance = _normal(x, axes, eps)
    count = x.numel() // mean.numel()
    for running, now in ((running_mean, mean), (running_var, variance * (count / max(count - 1, 1)))):
        if running is not None:
            now = getattr(now, "value", now).detach()
            running.lerp_(now.mean([axis for axis in range(now.ndim) if axis != 1]).to(running), momentum)
    return scaled(normal, by_channel(x, weight), by_channel(x, bias))


def _normal(x: Any, axes: Sequence[int], eps: float) -> tuple[Any, Any, Any]:
    """Return x with mean 0 and deviation 1 over the axes, and its former mean and variance."""
    given = wide(x)
    mean = given.mean(tuple(axes), keepdim=True)
    centred = given - mean
    variance = (centred * centred).mean(tuple(axes), keepdim=True)
    return standardised(centred, variance, eps, x.dtype), mean, variance
