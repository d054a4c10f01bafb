"""Features of the distances from walls: pieces of a boundary that are round or flat."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from dudx.errors import InputError
from dudx.lab.features.coordinate_features import smooth_sqrt
from dudx.lab.features.feature import Feature, column, positive


@dataclass(frozen=True)
class RoundWall:
    """A circle or sphere around a hole, in the first coordinates; the distance is positive outside of it."""

    center: tuple[float, ...]
    radius: float


@dataclass(frozen=True)
class FlatWall:
    """A plane on which a coordinate is `at`; the distance is positive on the side of `inward`, 1 or -1."""

    axis: int
    at: float
    inward: int


Wall = RoundWall | FlatWall


def mirrored_walls(wall: RoundWall, axes: Sequence[int] = (0, 1)) -> list[Wall]:
    """The wall and its distinct images under reflections of some axes."""
    centers = {wall.center}
    for axis in axes:
        centers |= {(*c[:axis], -c[axis] + 0.0, *c[axis + 1 :]) for c in centers}
    return [RoundWall(center, wall.radius) for center in sorted(centers)]


class DistancesToWalls(nn.Module):
    """The distances (B, walls) from some walls, round ones first."""

    centers: Tensor
    radii: Tensor

    def __init__(self, walls: Sequence[Wall]):
        super().__init__()
        rounds, flats = [w for w in walls if isinstance(w, RoundWall)], [w for w in walls if isinstance(w, FlatWall)]
        if len(rounds) + len(flats) != len(walls) or not walls:
            raise InputError(
                f"Walls are given as RoundWall(center, radius) or FlatWall(axis, at, inward); got {walls!r}."
            )
        if len({len(wall.center) for wall in rounds}) > 1:
            raise InputError("The centers of round walls must have equally many coordinates.")
        self.order = sorted(range(len(walls)), key=lambda number: isinstance(walls[number], FlatWall))
        self.flats = flats
        self.register_buffer("centers", torch.tensor([wall.center for wall in rounds]))
        self.register_buffer("radii", torch.tensor([wall.radius for wall in rounds]))

    def forward(self, x: Tensor) -> Tensor:
        found = [torch.sqrt(self.squared_from_centers(x)) - self.radii] if len(self.radii) else []
        found += [wall.inward * (column(x, wall.axis) - wall.at) for wall in self.flats]
        return torch.cat(found, dim=1)

    def squared_from_centers(self, x: Tensor) -> Tensor:
        """The squared distances (B, round walls) from the centers of round walls."""
        squares = 0.0
        for axis in range(self.centers.shape[1]):
            along = column(x, axis) - self.centers[:, axis]
            squares = squares + along * along
        return squares  # type: ignore[return-value]


class WallFeature(Feature):
    """A function of the distance from each wall, summed over the walls of each group: one column per group.

    Walls that a symmetry maps onto each other belong into one group, so that the column has the symmetry too.
    """

    sums: Tensor

    def __init__(self, groups: Sequence[Sequence[Wall]]):
        super().__init__()
        walls = [wall for group in groups for wall in group]
        self.distances = DistancesToWalls(walls)
        self.columns = len(groups)
        of_wall = [number for number, group in enumerate(groups) for _ in group]
        sums = torch.zeros(len(walls), len(groups))
        sums[torch.arange(len(walls)), torch.tensor(of_wall)[self.distances.order]] = 1
        self.register_buffer("sums", sums)

    def summed(self, of_walls: Tensor) -> Tensor:
        """Sum values (B, walls) over groups, (B, groups)."""
        return torch.matmul(of_walls, self.sums)


class WallDistance(WallFeature):
    """The distance from walls, summed over each group: `WallDistance([[RoundWall((0, 0), 1)], …])`."""

    def forward(self, x: Tensor) -> Tensor:
        return self.summed(self.distances(x))


class LogDistance(WallFeature):
    """log r of the distance r from the centers of round walls, which in the plane solves Laplace's equation."""

    def __init__(self, groups: Sequence[Sequence[Wall]]):
        super().__init__(groups)
        if not all(isinstance(wall, RoundWall) for group in groups for wall in group):
            raise InputError("Logarithms are those of distances from centers, so all walls must be RoundWall.")

    def forward(self, x: Tensor) -> Tensor:
        return self.summed(0.5 * torch.log(self.distances.squared_from_centers(x)))


class DiffusionFront(WallFeature):
    """erfc(z) of z = d / 2√(κt), the profile of heat from a wall kept warm, for each group of walls.

    Args:
        groups: groups of walls.
        time: the axis of time.
        start: the time at which diffusion starts.
        diffusivity: κ, the diffusion coefficient.
        soft: the duration over which √t is smoothed, so that nothing is singular at the start.
        flux: also √t (exp(-z²) / √π - z erfc(z)), the profile from a wall with a constant flux through it.
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
        root = math.sqrt(self.diffusivity) * smooth_sqrt(column(x, self.time) - self.start, self.soft)
        z = self.distances(x) * (0.5 / root)
        profile = torch.erfc(z)
        if not self.flux:
            return self.summed(profile)
        by_flux = root * (torch.exp(-z * z) / math.sqrt(math.pi) - z * profile)
        return torch.cat([self.summed(profile), self.summed(by_flux)], dim=1)


class BoundaryFactor(Feature):
    """The product over walls of d / (d + length): zero on each wall with a slope, near 1 far from all of them.

    Args:
        walls: the walls on which it is zero.
        length: the distance from a wall at which its factor is 1/2.
    """

    columns = 1

    def __init__(self, walls: Sequence[Wall], length: float = 1.0):
        super().__init__()
        self.distances, self.length = DistancesToWalls(walls), positive(length, "length")
        self.count = len(walls)

    def forward(self, x: Tensor) -> Tensor:
        d = self.distances(x)
        shares = d / (d + self.length)
        product = shares[:, 0:1]
        for number in range(1, self.count):
            product = product * shares[:, number : number + 1]
        return product
