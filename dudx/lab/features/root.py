"""The square root of time, without its infinite slope at the start."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from dudx.lab.features.feature import Feature, column, positive


def smooth_root(t: Tensor, soft: float) -> Tensor:
    """√t for t ≫ soft, and smooth for all t, also negative ones: the real part of √(t + i soft)."""
    # t + √(t² + soft²), written so that nothing cancels far before the start either.
    started = t >= 0
    longer = torch.sqrt(t * t + soft**2) + torch.where(started, t, -t)
    return torch.sqrt(0.5 * torch.where(started, longer, soft**2 / longer))


class SquareRoot(Feature):
    """√(t - start), smoothed around the start, where it is 0.

    What diffuses from a boundary that is suddenly warm has come √t far, and grows like √t: with this column it is a
    smooth function. Beyond `soft` the column is √t less a constant, to second order in soft / t.

    Args:
        axis: the coordinate, time as a rule.
        start: where the root starts.
        soft: the duration over which it is smoothed.
    """

    columns = 1

    def __init__(self, axis: int, start: float = 0.0, soft: float = 1e-3):
        super().__init__()
        self.axis, self.start, self.soft = axis, float(start), positive(soft, "soft")

    def forward(self, x: Tensor) -> Tensor:
        return smooth_root(column(x, self.axis) - self.start, self.soft) - math.sqrt(self.soft / 2)


FEATURE = SquareRoot
