"""Kernels that can be differentiated as often as one likes, for the engines that differentiate automatically."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode


@contextlib.contextmanager
def differentiable_kernels() -> Iterator[None]:
    """Run attention and normalisation on kernels that any number of derivatives can be taken of.

    The fused attention kernels refuse a second derivative. The fused normalisations do worse: their mean and deviation
    are constants to the second derivative's own derivative, so that third derivatives, and the gradient of a loss
    made of second ones, come out wrong without a word.
    """
    written_out = contextlib.nullcontext() if torch.compiler.is_compiling() else _WrittenOut()
    with slow_attention(), sdpa_kernel(SDPBackend.MATH), written_out:
        yield


@contextlib.contextmanager
def slow_attention() -> Iterator[None]:
    """Keep `nn.MultiheadAttention` and the transformer layers from kernels that cannot be looked into."""
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)


class _WrittenOut(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        function: Any = _REPLACEMENTS.get(func, func)
        return function(*args, **(kwargs or {}))


def _layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Tensor:
    del cudnn_enable
    normal, _, _ = _normalised(input, range(-len(normalized_shape), 0), eps)
    normal = normal if weight is None else normal * weight
    return normal if bias is None else normal + bias


def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """`F.batch_norm`, written out where it mixes samples."""
    if not training:  # an affine map, which the fused kernel gets right
        return F.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)
    F._verify_batch_size(input.size())  # type: ignore[attr-defined]
    return _by_channel(input, [0, *range(2, input.ndim)], running_mean, running_var, weight, bias, momentum, eps)


def _instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    if not use_input_stats:
        return F.instance_norm(input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps)
    F._verify_spatial_size(input.size())  # type: ignore[attr-defined]
    return _by_channel(input, range(2, input.ndim), running_mean, running_var, weight, bias, momentum, eps)


def _by_channel(
    input: Tensor,
    dims: Sequence[int],
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None,
    bias: Tensor | None,
    momentum: float,
    eps: float,
) -> Tensor:
    """Normalise over `dims` and scale each channel; keep the running statistics as the fused kernel does."""
    normal, mean, variance = _normalised(input, dims, eps)
    count = input.numel() // mean.numel()
    for running, now in ((running_mean, mean), (running_var, variance * (count / max(count - 1, 1)))):
        if running is not None:
            across = [dim for dim in range(now.ndim) if dim != 1]
            running.lerp_(now.detach().mean(across).to(running), momentum)
    shape = (1, -1) + (1,) * (input.ndim - 2)
    normal = normal if weight is None else normal * weight.view(shape)
    return normal if bias is None else normal + bias.view(shape)


def _normalised(input: Tensor, dims: Sequence[int], eps: float) -> tuple[Tensor, Tensor, Tensor]:
    # Half precision is too coarse for sums of squares; the fused kernels also compute in single precision.
    wide = input.float() if input.dtype in (torch.float16, torch.bfloat16) else input
    mean = wide.mean(list(dims), keepdim=True)
    centred = wide - mean
    variance = centred.square().mean(list(dims), keepdim=True)
    return (centred * torch.rsqrt(variance + eps)).to(input.dtype), mean, variance


def _torch_batch_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Tensor:
    del cudnn_enabled
    return batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)


def _torch_instance_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Tensor:
    del cudnn_enabled
    return _instance_norm(input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps)


_REPLACEMENTS: dict[Any, Callable[..., Tensor]] = {
    F.layer_norm: _layer_norm,
    F.batch_norm: batch_norm,
    F.instance_norm: _instance_norm,
    torch.layer_norm: _layer_norm,
    torch.batch_norm: _torch_batch_norm,
    torch.instance_norm: _torch_instance_norm,
}
