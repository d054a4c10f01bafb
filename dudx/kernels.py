"""Kernels that can be differentiated as often as one likes, for the engines that differentiate automatically."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode

from dudx.layers import norms


@contextlib.contextmanager
def differentiable_kernels(tracking: bool = True) -> Iterator[None]:
    """Run attention and normalisation on kernels that any number of derivatives can be taken of.

    The fused attention kernels refuse a second derivative, the fused normalisations get some silently wrong.

    Args:
        tracking: let normalisations by the batch update their running statistics.
    """
    written_out = contextlib.nullcontext() if torch.compiler.is_compiling() else WrittenOut(tracking)
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


def called(function: Any, args: Any, kwargs: Any) -> Any:
    """A torch function as it is without a mode; methods of Tensor would refuse what only follows torch, as jets do."""
    if args and not isinstance(args[0], Tensor) and hasattr(args[0], "__torch_function__"):
        return args[0].__torch_function__(function, (), args, kwargs)
    return function(*args, **kwargs)


class WrittenOut(TorchFunctionMode):
    """Normalisations in terms of arithmetic; all else as always.

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
            norm = self._batch_norm if func is F.batch_norm else norms.in_torch_order(self._batch_norm)
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
        return norms.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)


_WRITTEN_OUT: dict[Any, Callable[..., Any]] = {
    F.layer_norm: norms.layer_norm,
    torch.layer_norm: norms.layer_norm,
    F.instance_norm: norms.instance_norm,
    torch.instance_norm: norms.in_torch_order(norms.instance_norm),
}
