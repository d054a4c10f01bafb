"""Polygons in the plane."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations

import torch
from torch import Tensor

from dudx.errors import InputError
from dudx.lab.problems.geometry import Shape
from dudx.lab.problems.surfaces import Numbers, Segment, Surface


class Polygon(Shape):
    """The inside of a closed line through some corners, (x, y) each, in either direction; it may have no crossings."""

    def __init__(self, *corners: Sequence[float]) -> None:
        found = [tuple(float(c) for c in corner) for corner in corners]
        if len(found) < 3 or any(len(corner) != 2 or not all(map(math.isfinite, corner)) for corner in found):
            raise InputError(f"A polygon has three corners or more, each two finite numbers; got {corners!r}.")
        area = sum(x * to_y - to_x * y for (x, y), (to_x, to_y) in _edges(found)) / 2
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
        start = x.new_tensor(self.corners)[:, None]
        along = start.roll(-1, dims=0) - start
        offset = x - start
        share = ((offset * along).sum(dim=2) / (along * along).sum(dim=2)).clamp(0, 1)
        distance = torch.linalg.vector_norm(offset - share[..., None] * along, dim=2).amin(dim=0)
        # A ray to the right crosses an odd number of edges where it starts inside.
        below, above = start[..., 1] <= x[:, 1], (start + along)[..., 1] <= x[:, 1]
        level = torch.where(below != above, along[..., 1], 1.0)
        right = start[..., 0] + (x[:, 1] - start[..., 1]) / level * along[..., 0] > x[:, 0]
        inside = ((below != above) & right).sum(dim=0) % 2 == 1
        return torch.where(inside, -distance, distance)


def _edges(corners: Sequence[Numbers]) -> list[tuple[Numbers, Numbers]]:
    return list(zip(corners, [*corners[1:], corners[0]], strict=True))


def _cross_themselves(corners: Sequence[Numbers]) -> bool:
    def side(a: Numbers, b: Numbers, c: Numbers) -> float:
        return (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])

    return any(
        side(a, b, c) * side(a, b, d) < 0 and side(c, d, a) * side(c, d, b) < 0
        for (a, b), (c, d) in combinations(_edges(corners), 2)
    )
