"""Coordinates of a solution that is the same on both sides of a plane."""

from __future__ import annotations

import torch
from torch import Tensor

from dudx.lab.features.feature import Feature, column, positive


class Even(Feature):
    """x² and √(x² + length²): a network of them is even in x - center, and smooth where |x| has a kink.

    Args:
        axis: the coordinate.
        length: below it the second column is round, beyond it as straight as |x|.
        center: where the plane of symmetry is.
    """

    columns = 2

    def __init__(self, axis: int, length: float = 1.0, center: float = 0.0):
        super().__init__()
        self.axis, self.length, self.center = axis, positive(length, "length"), float(center)

    def forward(self, x: Tensor) -> Tensor:
        from_plane = column(x, self.axis) - self.center
        square = from_plane * from_plane
        return torch.cat([square, torch.sqrt(square + self.length**2)], dim=1)


FEATURE = Even
