"""Checks of tensors that come from a user: shape, dtype and finite values."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.autograd import forward_ad

from dudx.backend.private_torch import mapped, transforms_active
from dudx.errors import InputError


def points(x: object) -> Tensor:
    """A finite floating-point tensor of shape (B, d)."""
    x = batch(x)
    finite(x, "points")
    return x


def batch(x: object) -> Tensor:
    """A floating-point tensor of shape (B, d), its numbers not looked at."""
    if not isinstance(x, Tensor):
        raise InputError(f"The points must be a torch tensor of shape (B, d); got {type(x).__name__}.")
    if x.ndim != 2:
        raise InputError(f"The points must have shape (B, d), one row a point; got shape {tuple(x.shape)}.")
    if not x.is_floating_point():
        raise InputError(f"The points must be floating-point to be differentiated; got {x.dtype}: use x.float().")
    if 0 in x.shape:
        raise InputError(f"The batch of points is empty (shape {tuple(x.shape)}); give at least one point.")
    return x


def finite(values: Tensor, name: str) -> None:
    """Numbers without NaN and infinities."""
    # The meta device has no values to look at, nor has vmap; inside torch.compile a look would break the graph.
    if values.is_meta or torch.compiler.is_compiling() or (transforms_active() and mapped()):
        return
    # A sum is finite only if all its terms are, and costs less than looking at each; an overflow is looked into.
    if not math.isfinite(float(values.detach().sum())) and not bool(torch.isfinite(values).all()):
        bad = int((~torch.isfinite(values)).any(dim=1).nonzero()[0])
        raise InputError(f"The {name} must be finite; row {bad} holds a NaN or an infinity.")


def readable(x: Tensor) -> bool:
    """Whether the numbers of points can be looked at: not where `torch.func.vmap` shares them out."""
    if x.is_meta or torch.compiler.is_compiling():
        return False
    if transforms_active() and mapped():
        try:
            x.detach().sum().item()
        except RuntimeError:
            return False
    return True


def moves(x: Tensor) -> bool:
    """Whether somebody asks what happens when points move, by a backward pass or a forward one."""
    return x.requires_grad or forward_ad.unpack_dual(x).tangent is not None
