"""Balls in three dimensions or more, and polygons in the plane."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import torch
from torch import Tensor

from dudx.errors import InputError
from dudx.lab.problems.geometry import Shape
from dudx.lab.problems.surfaces import Numbers, Segment, Sphere, Surface


@dataclass(frozen=True)
class Ball(Shape):
    """A ball in three dimensions or more; in the plane that is a `Disc`."""

    center: Sequence[float]
    radius: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "center", tuple(float(c) for c in self.center))
        if len(self.center) < 3 or not all(map(math.isfinite, self.center)):
            raise InputError(f"The center of a ball has three finite coordinates or more; got {self.center!r}.")
        if not (math.isfinite(self.radius) and self.radius > 0):
            raise InputError(f"The radius of a ball must be positive and finite; got {self.radius}.")

    @property
    def bounds(self) -> tuple[Numbers, Numbers]:
        return tuple(c - self.radius for c in self.center), tuple(c + self.radius for c in self.center)

    @property
    def surfaces(self) -> tuple[Surface, ...]:
        return (Sphere(tuple(self.center), self.radius),)

    def _distance(self, x: Tensor) -> Tensor:
        return torch.linalg.vector_norm(x - x.new_tensor(self.center), dim=1) - self.radius


class Polygon(Shape):
    """A polygon with corners (x, y) in either direction; its edges may not cross."""

    def __init__(self, *corners: Sequence[float]) -> None:
        found = [tuple(float(c) for c in corner) for corner in corners]
        if len(found) < 3 or any(len(corner) != 2 or not all(map(math.isfinite, corner)) for corner in found):
            raise InputError(f"A polygon has three corners or more, each two finite numbers; got {corners!r}.")
        area = _area(found)
        if area < 0:
            found.reverse()  # counter-clockwise, so that what is at the right of an edge is outside
        if area == 0 or any(a == b for a, b in _edges(found)) or _cross_themselves(found):
            raise InputError(f"The edges of a polygon have a length, enclose something and do not cross: {corners!r}.")
        self.corners: tuple[Numbers, ...] = tuple(found)

    @property
    def bounds(self) -> tuple[Numbers, Numbers]:
        return tuple(map(min, zip(*self.corners, strict=True))), tuple(map(max, zip(*self.corners, strict=True)))

    @property
    def surfaces(self) -> tuple[Surface, ...]:
        return tuple(Segment(a, b) for a, b in _edges(self.corners))

    def _distance(self, x: Tensor) -> Tensor:
        start = x.new_tensor(self.corners)
        return distance_to_edges(x, start, start.roll(-1, dims=0) - start)


def distance_to_edges(x: Tensor, start: Tensor, along: Tensor) -> Tensor:
    """The distance (N,) of points to closed chains of edges in the plane, negative inside."""
    start, along = start[:, None], along[:, None]
    offset = x - start
    share = ((offset * along).sum(dim=2) / (along * along).sum(dim=2)).clamp(0, 1)
    distance = torch.linalg.vector_norm(offset - share[..., None] * along, dim=2).amin(dim=0)
    # A ray to the right crosses an odd number of edges where it starts inside.
    below, above = start[..., 1] <= x[:, 1], (start + along)[..., 1] <= x[:, 1]
    level = torch.where(below != above, along[..., 1], 1.0)
    right = start[..., 0] + (x[:, 1] - start[..., 1]) / level * along[..., 0] > x[:, 0]
    inside = ((below != above) & right).sum(dim=0) % 2 == 1
    return torch.where(inside, -distance, distance)


def _area(corners: Sequence[Numbers]) -> float:
    """The area, positive for counter-clockwise corners, measured from the first one so that nothing cancels."""
    x0, y0 = corners[0]
    return sum((x - x0) * (to_y - y0) - (to_x - x0) * (y - y0) for (x, y), (to_x, to_y) in _edges(corners)) / 2


def _edges(corners: Sequence[Numbers]) -> list[tuple[Numbers, Numbers]]:
    return list(zip(corners, [*corners[1:], corners[0]], strict=True))


def _cross_themselves(corners: Sequence[Numbers]) -> bool:
    def side(a: Numbers, b: Numbers, c: Numbers) -> float:
        return (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])

    return any(
        side(a, b, c) * side(a, b, d) < 0 and side(c, d, a) * side(c, d, b) < 0
        for (a, b), (c, d) in combinations(_edges(corners), 2)
    )
