"""How far what diffuses from a wall has come."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from dudx.lab.features.feature import column, positive
from dudx.lab.features.root import smooth_root
from dudx.lab.features.walls import OfWalls, Wall


class Front(OfWalls):
    """erfc(z) of z = d / 2√(κt), the profile of heat from a wall kept warm, for each group of walls.

    Args:
        groups: of walls.
        time: the axis of time.
        start: when it began.
        diffusivity: κ, how fast the front moves.
        soft: the duration over which √t is smoothed, so that nothing is singular at the start.
        flux: also √t (exp(-z²) / √π - z erfc(z)), the profile from a wall that a constant flux comes through.
    """

    def __init__(
        self,
        groups: Sequence[Sequence[Wall]],
        time: int,
        start: float = 0.0,
        diffusivity: float = 1.0,
        soft: float = 1e-3,
        flux: bool = False,
    ):
        super().__init__(groups)
        self.time, self.start = time, float(start)
        self.diffusivity, self.soft, self.flux = positive(diffusivity, "diffusivity"), positive(soft, "soft"), flux
        self.columns *= 2 if flux else 1

    def forward(self, x: Tensor) -> Tensor:
        root = math.sqrt(self.diffusivity) * smooth_root(column(x, self.time) - self.start, self.soft)
        z = self.distances(x) * (0.5 / root)
        profile = torch.erfc(z)
        if not self.flux:
            return self.summed(profile)
        by_flux = root * (torch.exp(-z * z) / math.sqrt(math.pi) - z * profile)
        return torch.cat([self.summed(profile), self.summed(by_flux)], dim=1)


FEATURE = Front
