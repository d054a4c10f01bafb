"""Normalisations written out in arithmetic that tensors and jets both follow.

A fused normalisation takes its mean and deviation for constants in the second derivative's own derivative, so that
third derivatives, and the gradient of a loss made of second ones, come out wrong without a word. These do not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from dudx.backend.private_torch import verify_batch_size, verify_spatial_size

_HALF = (torch.float16, torch.bfloat16)


def wide(x: Any) -> Any:
    """Half precision is too coarse for sums of squares; the fused kernels also compute in single precision."""
    return x.float() if x.dtype in _HALF else x


def standardised(centred: Any, variance: Any, eps: float, dtype: torch.dtype) -> Any:
    """What is centred at deviation 1, in the precision that was given."""
    normal = centred * torch.rsqrt(variance + eps)
    return normal.to(dtype) if normal.dtype != dtype else normal


def scaled(normal: Any, weight: Any, bias: Any) -> Any:
    """Times a weight plus a bias, where there are any."""
    normal = normal if weight is None else normal * weight
    return normal if bias is None else normal + bias


def by_channel(x: Any, value: Any) -> Any:
    """A number for each channel, shaped to meet x of shape (B, channels, …)."""
    return None if value is None else value.reshape(1, -1, *[1] * (x.ndim - 2))


def layer_norm(
    input: Any, normalized_shape: Sequence[int], weight: Any = None, bias: Any = None, eps: float = 1e-5, *rest: Any
) -> Any:
    """`F.layer_norm`; `torch.layer_norm` has an argument more, for a kernel."""
    return scaled(_normal(input, tuple(range(-len(normalized_shape), 0)), eps)[0], weight, bias)


def group_norm(input: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5, *rest: Any) -> Any:
    """`F.group_norm`."""
    grouped = input.reshape(input.shape[0], num_groups, -1)
    normal = _normal(grouped, (-1,), eps)[0].reshape(*input.shape)
    return scaled(normal, by_channel(input, weight), by_channel(input, bias))


def rms_norm(input: Any, normalized_shape: Sequence[int], weight: Any = None, eps: float | None = None) -> Any:
    """`F.rms_norm`."""
    axes = tuple(range(-len(normalized_shape), 0))
    eps = torch.finfo(input.dtype).eps if eps is None else eps
    return scaled(input * torch.rsqrt((input * input).mean(axes, keepdim=True) + eps), weight, None)


def batch_norm(
    input: Any, running_mean: Any, running_var: Any, weight: Any = None, bias: Any = None, training: bool = False,
    momentum: float = 0.1, eps: float = 1e-5,
) -> Any:  # fmt: skip
    """`F.batch_norm`: by the statistics of the batch while training, otherwise by those that are given."""
    if not training:
        scale = torch.rsqrt(running_var + eps)
        scale = scale if weight is None else scale * weight
        shift = -running_mean * scale if bias is None else bias - running_mean * scale
        return scaled(input, by_channel(input, scale), by_channel(input, shift))
    verify_batch_size(input.size())
    return _tracked(input, (0, *range(2, input.ndim)), running_mean, running_var, weight, bias, momentum, eps)


def instance_norm(
    input: Any, running_mean: Any = None, running_var: Any = None, weight: Any = None, bias: Any = None,
    use_input_stats: bool = True, momentum: float = 0.1, eps: float = 1e-5,
) -> Any:  # fmt: skip
    """`F.instance_norm`: by the statistics of each sample, or by those that are given."""
    if not use_input_stats:
        return batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
    verify_spatial_size(input.size())
    return _tracked(input, tuple(range(2, input.ndim)), running_mean, running_var, weight, bias, momentum, eps)


def in_torch_order(norm: Callable[..., Any]) -> Callable[..., Any]:
    """A norm, called as `torch.batch_norm` and `torch.instance_norm` are: weights come before statistics.

    What such a function is given before the input, a rule of its own has.
    """

    def reordered(*args: Any) -> Any:
        *before, x, weight, bias, mean, variance, of_input, momentum, eps, _ = args
        return norm(*before, x, mean, variance, weight, bias, of_input, momentum, eps)

    return reordered


def _tracked(
    x: Any, axes: Sequence[int], running_mean: Any, running_var: Any, weight: Any, bias: Any, momentum: float,
    eps: float,
) -> Any:  # fmt: skip
    """Normalise over axes and scale each channel; keep the running statistics as the fused kernel does."""
    normal, mean, variance = _normal(x, axes, eps)
    count = x.numel() // mean.numel()
    for running, now in ((running_mean, mean), (running_var, variance * (count / max(count - 1, 1)))):
        if running is not None:
            now = getattr(now, "value", now).detach()
            running.lerp_(now.mean([axis for axis in range(now.ndim) if axis != 1]).to(running), momentum)
    return scaled(normal, by_channel(x, weight), by_channel(x, bias))


def _normal(x: Any, axes: Sequence[int], eps: float) -> tuple[Any, Any, Any]:
    """What has mean 0 and deviation 1 over axes, and the mean and variance it had."""
    given = wide(x)
    mean = given.mean(tuple(axes), keepdim=True)
    centred = given - mean
    variance = (centred * centred).mean(tuple(axes), keepdim=True)
    return standardised(centred, variance, eps, x.dtype), mean, variance
