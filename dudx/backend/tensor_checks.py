"""Checks of tensors that come from a user: shape, dtype and finite values."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable

import torch
from torch import Tensor
from torch.autograd import forward_ad

from dudx.backend.active_modes import transforms_active, vmap_active
from dudx.errors import InputError

#: How often values of each kind were passed to `read_now` on a device that would have to be waited for.
_calls: Counter[Hashable] = Counter()
#: Kinds that are kept; with more, counting begins again.
_MOST_KINDS = 1000


def points(x: object) -> Tensor:
    """Return x if it is a finite floating-point tensor of shape (B, d); raise `InputError` otherwise."""
    x = batch(x)
    finite(x, "points")
    return x


def batch(x: object) -> Tensor:
    """Return x if it is a floating-point tensor of shape (B, d), without reading its values."""
    if not isinstance(x, Tensor):
        raise InputError(f"The points must be a torch tensor of shape (B, d); got {type(x).__name__}.")
    if x.ndim != 2:
        raise InputError(f"The points must have shape (B, d), one row per point; got shape {tuple(x.shape)}.")
    if not x.is_floating_point():
        raise InputError(f"The points must be floating-point to be differentiated; got {x.dtype}: use x.float().")
    if 0 in x.shape:
        raise InputError(f"The batch of points is empty (shape {tuple(x.shape)}); give at least one point.")
    return x


def finite(values: Tensor, name: str) -> None:
    """Raise `InputError` if the values contain NaN or infinity."""
    # Values cannot be read on the meta device or inside vmap; inside torch.compile reading them breaks the graph.
    if values.is_meta or torch.compiler.is_compiling() or (transforms_active() and vmap_active()):
        return
    # A finite sum implies finite terms and is cheaper to test; the sum may overflow, so the terms decide.
    if not math.isfinite(float(values.detach().sum())) and not bool(torch.isfinite(values).all()):
        bad = int((~torch.isfinite(values)).any(dim=1).nonzero()[0])
        raise InputError(f"The {name} must be finite; row {bad} holds a NaN or an infinity.")


def finite_on_schedule(values: Tensor, name: str) -> None:
    """Check that values are finite, as often as `read_now` allows; in between a NaN passes into the results."""
    if read_now(values, name):
        finite(values, name)


def read_now(values: Tensor, name: str) -> bool:
    """Return True if values may be read without stalling a GPU: always on a CPU, else at the 1st, 2nd, 4th, ... call.

    Calls are counted per name, shape, format and device.
    """
    if free_to_read(values):
        return True
    if len(_calls) > _MOST_KINDS:
        _calls.clear()
    kind = (name, values.shape, values.dtype, values.device)
    _calls[kind] += 1
    return _calls[kind] & (_calls[kind] - 1) == 0


def free_to_read(values: Tensor) -> bool:
    """Return True if reading values does not wait for a device to finish the work queued on it."""
    return values.device.type == "cpu"


def readable(x: Tensor) -> bool:
    """Return True if the values of x can be read, which is impossible for tensors mapped by `torch.func.vmap`."""
    if x.is_meta or torch.compiler.is_compiling():
        return False
    if transforms_active() and vmap_active():
        try:
            x.detach().sum().item()
        except RuntimeError:
            return False
    return True


def moves(x: Tensor) -> bool:
    """Return True if derivatives with respect to x are requested, in reverse or forward mode."""
    return x.requires_grad or forward_ad.unpack_dual(x).tangent is not None
