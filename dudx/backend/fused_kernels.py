"""Fused kernels that torch differentiates wrongly or not at all, recognised by their nodes in the autograd graph.

The derivative of a fused normalisation treats mean and deviation as constants when it is differentiated again: third
derivatives, and gradients of second derivatives, are silently wrong. Fused attention raises an error at the second
derivative. Group normalisation is not listed: torch differentiates it to any order.
"""

from __future__ import annotations

import traceback
from typing import Any

_NORMS = ("NativeLayerNorm", "NativeBatchNorm", "CudnnBatchNorm", "MiopenBatchNorm", "FusedRmsNorm")
_ATTENTION = ("ScaledDotProduct",)


def is_fused_norm(node: Any) -> bool:
    """Return True for a normalisation by statistics of its argument; with fixed statistics it is an affine map."""
    fixed = any(getattr(node, name, True) is False for name in ("_saved_training", "_saved_train"))
    return node.name().startswith(_NORMS) and not fixed


def is_fused(node: Any) -> bool:
    """Return True for a normalisation or attention."""
    return is_fused_norm(node) or node.name().startswith(_ATTENTION)


def is_higher_order(function: Any) -> bool:
    """Return True for torch.cond and its like, whose second derivative torch takes for zero.

    Args:
        function: the class of an autograd function, `node._forward_cls`.
    """
    return function.__module__.startswith("torch._higher_order_ops")


def from_control_flow(error: BaseException) -> bool:
    """Return True if an error was raised inside of torch.cond or its like."""
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    return any(frame.f_globals.get("__name__", "").startswith("torch._higher_order_ops") for frame in frames)
