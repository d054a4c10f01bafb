"""Surfaces (points, curves, faces) that bound shapes: points spread evenly over them, and their normals.

Faces and circles are rows of numbers, (base, extent, normal, radius), so that many are computed at once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

Numbers = tuple[float, ...]


class Surface(Protocol):
    """A point, a curve or a surface that bounds a shape in d dimensions."""

    @property
    def measure(self) -> float:
        """The length or area; 1 for a point."""
        ...

    def located(self, unit: Tensor) -> tuple[Tensor, Tensor]:
        """Map numbers (N, d) in [0, 1] to points spread evenly over the surface, and the unit normals there."""
        ...

    def touches(self, points: Tensor, normals: Tensor, within: float) -> Tensor:
        """Mark the points (N,) within a distance of the surface whose normals are parallel to its own."""
        ...


class _Row:
    """A surface described by a row of numbers."""

    def row(self) -> Numbers:
        raise NotImplementedError

    def located(self, unit: Tensor) -> tuple[Tensor, Tensor]:
        return rows_located([c.expand(len(unit), -1) for c in columns_of([self.row()], unit)], unit)

    def touches(self, points: Tensor, normals: Tensor, within: float) -> Tensor:
        return rows_touched(columns_of([self.row()], points), points, normals, within)[0]


@dataclass(frozen=True)
class Face(_Row):
    """A face of a box: a point, an edge or a rectangle from `low` to `high`, which are equal along one axis."""

    low: Numbers
    high: Numbers
    normal: Numbers

    @property
    def measure(self) -> float:
        return math.prod(b - a for a, b in zip(self.low, self.high, strict=True) if a < b)

    def row(self) -> Numbers:
        return *self.low, *(b - a for a, b in zip(self.low, self.high, strict=True)), *self.normal, 0.0


@dataclass(frozen=True)
class Circle(_Row):
    """A circle in the plane."""

    center: Numbers
    radius: float

    @property
    def measure(self) -> float:
        return 2 * math.pi * self.radius

    def row(self) -> Numbers:
        return *self.center, 0.0, 0.0, 0.0, 0.0, self.radius


def columns_of(rows: Sequence[Numbers], like: Tensor) -> Sequence[Tensor]:
    """Split rows into base (k, d), extent (k, d), normal (k, d) and radius (k, 1)."""
    d = len(rows[0]) // 3
    return like.new_tensor(rows).split([d, d, d, 1], dim=1)


def rows_located(columns: Sequence[Tensor], unit: Tensor) -> tuple[Tensor, Tensor]:
    """One point and one normal per row."""
    base, extent, normal, radius = columns
    points = base + extent * unit
    if unit.shape[1] != 2:
        return points, normal
    angle = 2 * math.pi * unit[:, 0]
    direction = torch.stack([angle.cos(), angle.sin()], dim=1)
    return points + radius * direction, torch.where(radius > 0, direction, normal)


def rows_touched(columns: Sequence[Tensor], points: Tensor, normals: Tensor, within: float) -> Tensor:
    """Mark the points (k, N) on each of the surfaces."""
    base, extent, normal, radius = (column[:, None] for column in columns)
    offset = points - torch.minimum(torch.maximum(points, base), base + extent)
    close = (torch.linalg.vector_norm(offset, dim=2) - radius[..., 0]).abs() < within
    parallel = (torch.where(radius > 0, offset / radius, normal) * normals).sum(dim=2).abs() > 0.99
    return close & parallel


@dataclass(frozen=True)
class Segment:
    """An edge of a polygon; the normal points to the right of the direction from `start` to `end`."""

    start: Numbers
    end: Numbers

    @property
    def measure(self) -> float:
        return math.dist(self.start, self.end)

    def located(self, unit: Tensor) -> tuple[Tensor, Tensor]:
        start, along = self._ends(unit)
        return start + along * unit[:, :1], self._normal(unit).expand(len(unit), -1)

    def touches(self, points: Tensor, normals: Tensor, within: float) -> Tensor:
        start, along = self._ends(points)
        share = ((points - start) @ along / along.dot(along)).clamp(0, 1)
        close = torch.linalg.vector_norm(points - start - share[:, None] * along, dim=1) < within
        return close & ((normals @ self._normal(points)).abs() > 0.99)

    def _ends(self, like: Tensor) -> tuple[Tensor, Tensor]:
        start = like.new_tensor(self.start)
        return start, like.new_tensor(self.end) - start

    def _normal(self, like: Tensor) -> Tensor:
        (x, y), (to_x, to_y) = self.start, self.end
        return like.new_tensor([to_y - y, x - to_x]) / self.measure


@dataclass(frozen=True)
class Sphere:
    """A sphere in three dimensions or more."""

    center: Numbers
    radius: float

    @property
    def measure(self) -> float:
        d = len(self.center)
        return 2 * math.pi ** (d / 2) / math.gamma(d / 2) * self.radius ** (d - 1)

    def located(self, unit: Tensor) -> tuple[Tensor, Tensor]:
        # Normally distributed coordinates have no preferred direction; the ends of [0, 1] would be at infinity.
        tiny = torch.finfo(unit.dtype).eps
        drawn = torch.special.ndtri(unit.clamp(tiny, 1 - tiny))
        normals = drawn / torch.linalg.vector_norm(drawn, dim=1, keepdim=True).clamp(min=tiny)
        return unit.new_tensor(self.center) + self.radius * normals, normals

    def touches(self, points: Tensor, normals: Tensor, within: float) -> Tensor:
        offset = points - points.new_tensor(self.center)
        close = (torch.linalg.vector_norm(offset, dim=1) - self.radius).abs() < within
        return close & (((offset / self.radius) * normals).sum(dim=1).abs() > 0.99)
