"""What a steady flow around round holes looks like: the logarithm of the distance from their centers."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from dudx.errors import InputError
from dudx.lab.features.walls import OfWalls, Round, Wall


class Logarithm(OfWalls):
    """log r around each group of round walls, which in the plane solves Laplace's equation."""

    def __init__(self, groups: Sequence[Sequence[Wall]]):
        super().__init__(groups)
        if not all(isinstance(wall, Round) for group in groups for wall in group):
            raise InputError("Logarithms are those of distances from centers, so all walls must be Round.")

    def forward(self, x: Tensor) -> Tensor:
        return self.summed(0.5 * torch.log(self.distances.squared(x)))


FEATURE = Logarithm
