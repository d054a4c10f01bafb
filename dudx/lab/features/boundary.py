"""A function that is zero on the boundary, for hard boundary values."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from dudx.lab.features.feature import Feature, positive
from dudx.lab.features.walls import Distances, Wall


class Boundary(Feature):
    """The product over walls of d / (d + length): zero on each wall with a slope, near 1 far from all of them.

    Args:
        walls: where it is to be zero.
        length: how far it is felt.
    """

    columns = 1

    def __init__(self, walls: Sequence[Wall], length: float = 1.0):
        super().__init__()
        self.distances, self.length = Distances(walls), positive(length, "length")
        self.count = len(walls)

    def forward(self, x: Tensor) -> Tensor:
        d = self.distances(x)
        shares = d / (d + self.length)
        product = shares[:, 0:1]
        for number in range(1, self.count):
            product = product * shares[:, number : number + 1]
        return product


FEATURE = Boundary
