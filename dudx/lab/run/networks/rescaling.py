"""Inputs between -1 and 1, whatever the domain."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from dudx.errors import InputError

Bounds = tuple[Sequence[float], Sequence[float]]


class Rescale(nn.Module):
    """Map each input from its range to [-1, 1]."""

    low: Tensor
    high: Tensor

    def __init__(self, bounds: Bounds):
        super().__init__()
        low, high = (torch.as_tensor(end, dtype=torch.get_default_dtype()) for end in bounds)
        if low.shape != high.shape or not bool((low < high).all()):
            raise InputError(f"The bounds to rescale from must be two corners, the lower one first; got {bounds!r}.")
        self.register_buffer("low", low)
        self.register_buffer("high", high)

    def forward(self, x: Tensor) -> Tensor:
        return (2 * x - (self.low + self.high)) / (self.high - self.low)
