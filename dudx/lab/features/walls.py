"""Pieces of a boundary that features measure distances from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from dudx.errors import InputError
from dudx.lab.features.feature import Feature, column


@dataclass(frozen=True)
class Round:
    """The circle or sphere around a hole, in the first coordinates; the distance is positive outside of it."""

    center: tuple[float, ...]
    radius: float


@dataclass(frozen=True)
class Flat:
    """The plane where a coordinate has a certain value; the distance is positive on the side of `inward`, 1 or -1."""

    axis: int
    at: float
    inward: int


Wall = Round | Flat


class Distances(nn.Module):
    """The distances (B, walls) from some walls, round ones first."""

    centers: Tensor
    radii: Tensor

    def __init__(self, walls: Sequence[Wall]):
        super().__init__()
        rounds, flats = [w for w in walls if isinstance(w, Round)], [w for w in walls if isinstance(w, Flat)]
        if len(rounds) + len(flats) != len(walls) or not walls:
            raise InputError(f"Walls are given as Round(center, radius) or Flat(axis, at, inward); got {walls!r}.")
        if len({len(wall.center) for wall in rounds}) > 1:
            raise InputError("The centers of round walls must have equally many coordinates.")
        self.order = sorted(range(len(walls)), key=lambda number: isinstance(walls[number], Flat))
        self.flats = flats
        self.register_buffer("centers", torch.tensor([wall.center for wall in rounds]))
        self.register_buffer("radii", torch.tensor([wall.radius for wall in rounds]))

    def forward(self, x: Tensor) -> Tensor:
        found = [self.from_centers(x) - self.radii] if len(self.radii) else []
        found += [wall.inward * (column(x, wall.axis) - wall.at) for wall in self.flats]
        return torch.cat(found, dim=1)

    def from_centers(self, x: Tensor) -> Tensor:
        """The distances (B, round walls) from the centers."""
        return torch.sqrt(self.squared(x))

    def squared(self, x: Tensor) -> Tensor:
        """Their squares."""
        squares = 0.0
        for axis in range(self.centers.shape[1]):
            along = column(x, axis) - self.centers[:, axis]
            squares = squares + along * along
        return squares  # type: ignore[return-value]


class OfWalls(Feature):
    """A function of the distance from each wall, summed over the walls of a group: one column a group.

    Walls that a symmetry maps onto each other are one group, so that the column has the symmetry too.
    """

    sums: Tensor

    def __init__(self, groups: Sequence[Sequence[Wall]]):
        super().__init__()
        walls = [wall for group in groups for wall in group]
        self.distances = Distances(walls)
        self.columns = len(groups)
        of_wall = [number for number, group in enumerate(groups) for _ in group]
        sums = torch.zeros(len(walls), len(groups))
        sums[torch.arange(len(walls)), torch.tensor(of_wall)[self.distances.order]] = 1
        self.register_buffer("sums", sums)

    def summed(self, of_walls: Tensor) -> Tensor:
        """(B, walls) to (B, groups)."""
        return torch.matmul(of_walls, self.sums)


def mirrored(wall: Round, axes: Sequence[int] = (0, 1)) -> list[Wall]:
    """The wall and its images under reflections of some axes, each once."""
    centers = {wall.center}
    for axis in axes:
        centers |= {(*c[:axis], -c[axis] + 0.0, *c[axis + 1 :]) for c in centers}
    return [Round(center, wall.radius) for center in sorted(centers)]
