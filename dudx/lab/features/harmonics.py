"""Coordinates of a solution that repeats itself."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from dudx.errors import whole_number
from dudx.lab.features.feature import Feature, column, positive


class Harmonics(Feature):
    """cos and sin of 2π k x / period for k = 1 … harmonics: a network of them is periodic, with all derivatives.

    Args:
        axis: the coordinate.
        period: after which the solution repeats itself.
        harmonics: how many waves; one is enough for a network, more let it oscillate sooner.
        even: cosines only, for a solution that is even too.
    """

    def __init__(self, axis: int, period: float, harmonics: int = 1, even: bool = False):
        super().__init__()
        harmonics = whole_number(harmonics, "harmonics")
        self.axis, self.period, self.harmonics, self.even = axis, positive(period, "period"), harmonics, even
        self.columns = harmonics * (1 if even else 2)

    def forward(self, x: Tensor) -> Tensor:
        angle = 2 * math.pi / self.period * column(x, self.axis)
        waves = range(1, self.harmonics + 1)
        cosines = [torch.cos(k * angle) for k in waves]
        return torch.cat(cosines if self.even else [*cosines, *(torch.sin(k * angle) for k in waves)], dim=1)


FEATURE = Harmonics
