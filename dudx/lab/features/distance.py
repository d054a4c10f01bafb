"""The distance from the boundary, or from pieces of it."""

from __future__ import annotations

from torch import Tensor

from dudx.lab.features.walls import OfWalls


class Distance(OfWalls):
    """The distance from each group of walls (the sum over its walls): `Distance([[Round((0, 0), 1)], …])`."""

    def forward(self, x: Tensor) -> Tensor:
        return self.summed(self.distances(x))


FEATURE = Distance
