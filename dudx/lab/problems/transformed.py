"""Shapes that are moved, turned, stretched or extruded, and ellipses."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from dudx.errors import InputError
from dudx.lab.problems.geometry import Disc, Shape
from dudx.lab.problems.surfaces import Circle, Face, Numbers, Segment, Surface

#: Points of the table by which a stretched curve is parametrised by its length.
_TABLE = 2**13


class Transformed(Shape):
    """The image of a shape under x → A x + b.

    Args:
        shape: the shape.
        matrix: A, (d, d), invertible.
        shift: b, (d,).
    """

    def __init__(self, shape: Shape, matrix: Sequence[Sequence[float]], shift: Sequence[float]):
        if not isinstance(shape, Shape):
            raise InputError(f"A shape in space is transformed; got {type(shape).__name__}.")
        a, b = np.array(matrix, dtype=float), np.array(shift, dtype=float)
        d = shape.dimension
        if a.shape != (d, d) or b.shape != (d,) or not np.isfinite(a).all() or not np.isfinite(b).all():
            raise InputError(f"A shape in {d} dimensions takes a finite matrix ({d}, {d}) and a shift ({d},).")
        self.stretches = np.linalg.svd(a, compute_uv=False)
        if self.stretches.min() <= 1e-9 * self.stretches.max():
            raise InputError("The matrix of a transformation must be invertible.")
        self.shape, self.matrix, self.shift = shape, a, b
        flat = all(isinstance(surface, Face | Segment) for surface in shape.surfaces)
        if d > 2 and not flat and not self._keeps_shape:
            raise InputError(
                "Curved surfaces in space can be moved, turned and scaled equally along all axes, not stretched."
            )

    @property
    def _keeps_shape(self) -> bool:
        return bool(self.stretches.max() - self.stretches.min() <= 1e-12 * self.stretches.max())

    @cached_property
    def bounds(self) -> tuple[Numbers, Numbers]:  # type: ignore[override]
        if isinstance(self.shape, Disc):
            center = self.matrix @ np.array(self.shape.center) + self.shift
            reach = self.shape.radius * np.linalg.norm(self.matrix, axis=1)
            return tuple((center - reach).tolist()), tuple((center + reach).tolist())
        low, high = self.shape.bounds
        corners = np.stack(np.meshgrid(*zip(low, high, strict=True), indexing="ij"), axis=-1).reshape(-1, len(low))
        images = corners @ self.matrix.T + self.shift
        return tuple(images.min(axis=0).tolist()), tuple(images.max(axis=0).tolist())

    @cached_property
    def surfaces(self) -> tuple[Surface, ...]:  # type: ignore[override]
        return tuple(TransformedSurface(surface, self.matrix, self.shift) for surface in self.shape.surfaces)

    def _distance(self, x: Tensor) -> Tensor:
        return float(self.stretches.min()) * self.shape._distance(_before(x, self.matrix, self.shift))


class TransformedSurface:
    """The image of a surface under x → A x + b, with points spread evenly over it."""

    def __init__(self, surface: Surface, matrix: np.ndarray, shift: np.ndarray):
        self.surface, self.matrix, self.shift = surface, matrix, shift

    @cached_property
    def _lengths(self) -> Tensor | None:
        """The length of a curve up to points of its parameter; None where a surface is stretched equally."""
        if not isinstance(self.surface, Circle):
            return None
        angle = 2 * math.pi * (torch.arange(_TABLE, dtype=torch.float64) + 0.5) / _TABLE
        along = torch.stack([-angle.sin(), angle.cos()], dim=1) @ torch.from_numpy(self.matrix).T
        speed = 2 * math.pi * self.surface.radius * along.norm(dim=1) / _TABLE
        return torch.cat([speed.new_zeros(1), speed.cumsum(0)])

    @property
    def measure(self) -> float:
        return self._measure if self._lengths is None else float(self._lengths[-1])

    @cached_property
    def _measure(self) -> float:
        # Plane surfaces and similar images: areas of all parts change by one factor.
        unit = torch.full((1, len(self.shift)), 0.3, dtype=torch.float64)
        _, normal = self.surface.located(unit)
        cofactor = np.linalg.det(self.matrix) * np.linalg.inv(self.matrix).T
        return self.surface.measure * float(np.linalg.norm(cofactor @ normal[0].numpy()))

    def located(self, unit: Tensor) -> tuple[Tensor, Tensor]:
        if self._lengths is not None:
            lengths = self._lengths.to(unit.device)
            wanted = unit[:, 0].double() * lengths[-1]
            place = torch.searchsorted(lengths, wanted).clamp(1, _TABLE)
            share = (wanted - lengths[place - 1]) / (lengths[place] - lengths[place - 1])
            unit = torch.cat([((place - 1 + share) / _TABLE)[:, None].to(unit), unit[:, 1:]], dim=1)
        points, normals = self.surface.located(unit)
        matrix, shift = torch.from_numpy(self.matrix).to(points), torch.from_numpy(self.shift).to(points)
        turned = normals @ torch.linalg.inv(matrix)
        return points @ matrix.T + shift, turned / turned.norm(dim=1, keepdim=True)

    def touches(self, points: Tensor, normals: Tensor, within: float) -> Tensor:
        matrix = torch.from_numpy(self.matrix).to(points)
        turned = normals @ matrix
        before = _before(points, self.matrix, self.shift)
        # The largest stretch: no point is taken to touch that does not.
        reach = within / float(np.linalg.norm(self.matrix, 2))
        return self.surface.touches(before, turned / turned.norm(dim=1, keepdim=True), reach)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, TransformedSurface) and self.surface == other.surface
            and np.array_equal(self.matrix, other.matrix) and np.array_equal(self.shift, other.shift)
        )  # fmt: skip

    def __hash__(self) -> int:
        return hash((type(self), self.surface, self.matrix.tobytes(), self.shift.tobytes()))

    def __repr__(self) -> str:
        return f"the image of {self.surface!r}"


def _before(x: Tensor, matrix: np.ndarray, shift: np.ndarray) -> Tensor:
    inverse = torch.from_numpy(np.linalg.inv(matrix)).to(x)
    return (x - torch.from_numpy(shift).to(x)) @ inverse.T


def move(shape: Shape, vector: Sequence[float]) -> Transformed:
    """Move a shape by a vector."""
    return Transformed(shape, np.eye(shape.dimension), vector)  # type: ignore[arg-type]


def rotate(
    shape: Shape, degrees: float, about: Sequence[float] | None = None, axis: Sequence[float] = (0, 0, 1)
) -> Transformed:
    """Turn a shape in the plane, or around an axis in space, counter-clockwise.

    Args:
        shape: the shape, in two or three dimensions.
        degrees: the angle.
        about: the point that stays where it is; by default the origin.
        axis: the direction of the axis in space.
    """
    if shape.dimension not in (2, 3) or not math.isfinite(degrees):
        raise InputError("Shapes in the plane and in space are turned, by a finite number of degrees.")
    angle = math.radians(degrees)
    if shape.dimension == 2:
        matrix = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
    else:
        length = float(np.linalg.norm(axis))
        if len(axis) != 3 or not length > 0:
            raise InputError(f"The axis of a rotation is three numbers, not all zero; got {axis!r}.")
        x, y, z = np.array(axis, dtype=float) / length
        cross = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
        matrix = np.eye(3) + math.sin(angle) * cross + (1 - math.cos(angle)) * (cross @ cross)
    center = np.zeros(shape.dimension) if about is None else np.array(about, dtype=float)
    if center.shape != (shape.dimension,):
        raise InputError(f"A shape in {shape.dimension} dimensions is turned about a point of as many; got {about!r}.")
    return Transformed(shape, matrix, center - matrix @ center)  # type: ignore[arg-type]


def scale(shape: Shape, factors: float | Sequence[float], about: Sequence[float] | None = None) -> Transformed:
    """Stretch a shape by one factor, or by one per axis, from a point (by default the origin)."""
    each = np.full(shape.dimension, factors, dtype=float) if np.ndim(factors) == 0 else np.array(factors, dtype=float)
    center = np.zeros(shape.dimension) if about is None else np.array(about, dtype=float)
    if each.shape != (shape.dimension,) or center.shape != each.shape or not (each > 0).all():
        raise InputError(f"A shape in {shape.dimension} dimensions is stretched by positive factors; got {factors!r}.")
    return Transformed(shape, np.diag(each), center - each * center)  # type: ignore[arg-type]


class Ellipse(Transformed):
    """An ellipse in the plane.

    Args:
        center: its center.
        axes: the lengths of its two half axes, along x and y before it is turned.
        degrees: the angle by which it is turned counter-clockwise.
    """

    def __init__(self, center: Sequence[float], axes: Sequence[float], degrees: float = 0.0):
        if len(axes) != 2 or not all(math.isfinite(a) and a > 0 for a in axes):
            raise InputError(f"The half axes of an ellipse are two positive numbers; got {axes!r}.")
        turned = rotate(scale(Disc((0.0, 0.0), 1.0), axes), degrees)
        matrix = turned.matrix @ np.diag(np.array(axes, dtype=float))
        super().__init__(Disc((0.0, 0.0), 1.0), matrix, center)  # type: ignore[arg-type]


class Extrusion(Shape):
    """A shape in the plane, extended along the third axis from `low` to `high`."""

    def __init__(self, shape: Shape, low: float, high: float):
        if not isinstance(shape, Shape) or shape.dimension != 2:
            raise InputError("Shapes in the plane are extruded.")
        if not low < high or not math.isfinite(high - low):
            raise InputError(f"A shape is extruded from a lower to a higher number; got {low} and {high}.")
        self.shape, self.low, self.high = shape, float(low), float(high)

    @property
    def bounds(self) -> tuple[Numbers, Numbers]:
        low, high = self.shape.bounds
        return (*low, self.low), (*high, self.high)

    @cached_property
    def surfaces(self) -> tuple[Surface, ...]:  # type: ignore[override]
        (x0, y0), (x1, y1) = self.shape.bounds
        bottom = Face((x0, y0, self.low), (x1, y1, self.low), (0.0, 0.0, -1.0))
        top = Face((x0, y0, self.high), (x1, y1, self.high), (0.0, 0.0, 1.0))
        return (*(Wall(surface, self.low, self.high) for surface in self.shape.surfaces), bottom, top)

    def _distance(self, x: Tensor) -> Tensor:
        across, along = self.shape._distance(x[:, :2]), torch.maximum(self.low - x[:, 2], x[:, 2] - self.high)
        outside = torch.stack([across, along], dim=1).clamp(min=0).norm(dim=1)
        return outside + torch.maximum(across, along).clamp(max=0)


class Wall:
    """A curve in the plane, extended along the third axis."""

    def __init__(self, curve: Surface, low: float, high: float):
        self.curve, self.low, self.high = curve, low, high

    @property
    def measure(self) -> float:
        return self.curve.measure * (self.high - self.low)

    def located(self, unit: Tensor) -> tuple[Tensor, Tensor]:
        # The last column is free: a curve takes one number, in the first or the second.
        points, normals = self.curve.located(unit[:, :2])
        height = self.low + (self.high - self.low) * unit[:, 2:]
        return torch.cat([points, height], dim=1), torch.cat([normals, torch.zeros_like(height)], dim=1)

    def touches(self, points: Tensor, normals: Tensor, within: float) -> Tensor:
        level = (points[:, 2] > self.low - within) & (points[:, 2] < self.high + within)
        return level & (normals[:, 2].abs() < 0.1) & self.curve.touches(points[:, :2], normals[:, :2], within)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Wall) and (self.curve, self.low, self.high) == (other.curve, other.low, other.high)

    def __hash__(self) -> int:
        return hash((type(self), self.curve, self.low, self.high))

    def __repr__(self) -> str:
        return f"the wall over {self.curve!r}"
