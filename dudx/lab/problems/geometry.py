"""Shapes with straight or round boundaries, their combinations, and shapes over an interval of time.

    plate = Box((-0.5, -0.5), (0.5, 0.5)) - Disc((0.3, 0.3), 0.1)
    x = plate.sample(8192, generator)                                      # (8192, 2)
    points, normals, piece = plate.sample_boundary(2048, generator)        # piece: an index into plate.pieces
    space_time = plate * Interval(0, 3)                                    # columns x, y, t

Points are the rows of a tensor (N, d). Normals have length 1 and point out of the domain, so into a hole.
"""

from __future__ import annotations

import itertools
import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Generator, Tensor
from torch.quasirandom import SobolEngine

from dudx.errors import InputError
from dudx.lab.problems.boundary_pieces import (
    PROBES,
    Device,
    Piece,
    double,
    located,
    outward_side,
    sample_pieces,
)
from dudx.lab.problems.domain import Domain
from dudx.lab.problems.surfaces import Circle, Face, Numbers, Surface

__all__ = [
    "Box",
    "Circle",
    "Cutout",
    "Cylinder",
    "Disc",
    "Domain",
    "Face",
    "Intersection",
    "Interval",
    "Shape",
    "Union",
]
__all__ += ["sample_pieces"]

#: The step across a surface that tells its two sides apart, relative to the smallest surface of a shape, and to the
#: rounding of the largest coordinate.
_STEP, _STEP_IN_ROUNDINGS = 1e-6, 1e3
#: Surfaces without any of `PROBES` points on the boundary are probed this much more densely, where surfaces are few.
_DENSER, _FEW = 2**4, 32


class Shape(Domain):
    """A domain in space, which combines with others by `-`, `|` and `&`, and with an interval of time by `*`."""

    @property
    @abstractmethod
    def surfaces(self) -> tuple[Surface, ...]:
        """The whole surfaces of all parts; on the boundary, one side of a surface is inside and the other is not."""

    def _pieces(self) -> tuple[Piece, ...]:
        pieces = [self._piece(number, surface) for number, surface in enumerate(self.surfaces)]
        return tuple(piece for piece in pieces if piece.share > 0)

    def _piece(self, number: int, surface: Surface) -> Piece:
        outward = self._probed(number, PROBES)
        if not bool(outward.any()) and len(self.surfaces) <= _FEW:
            outward = self._probed(number, _DENSER * PROBES)
        share, side = float(outward.abs().mean()), float(outward.mean())
        return Piece(surface, self, number, share, side if abs(side) == 1 else 0.0)

    def _probed(self, number: int, count: int) -> Tensor:
        unit = SobolEngine(self.dimension, scramble=True, seed=0).draw(count, dtype=torch.float64)
        numbers = torch.full((count,), number, device=unit.device)
        return outward_side(self, *located(self, numbers, unit), numbers)

    def _step_across(self, dtype: torch.dtype) -> float:
        """The step across a surface that tells its two sides apart: shorter than any part of the shape."""
        (low, high), surfaces = self.bounds, self.surfaces
        if self.dimension == 1:
            ends = sorted({face.low[0] for face in surfaces if isinstance(face, Face)})
            smallest = min(b - a for a, b in itertools.pairwise(ends))
        else:
            smallest = min(surface.measure for surface in surfaces) ** (1 / (self.dimension - 1))
        return max(_STEP * smallest, _STEP_IN_ROUNDINGS * torch.finfo(dtype).eps * max(map(abs, (*low, *high))))

    def __sub__(self, hole: Shape) -> Cutout:
        return Cutout(self.shape, *self.holes, hole) if isinstance(self, Cutout) else Cutout(self, hole)

    def __or__(self, other: Shape) -> Union:
        return Union(*self.parts, other) if isinstance(self, Union) else Union(self, other)

    def __and__(self, other: Shape) -> Intersection:
        return Intersection(*self.parts, other) if isinstance(self, Intersection) else Intersection(self, other)

    def __mul__(self, time: Interval) -> Cylinder:
        return Cylinder(self, time)


@dataclass(frozen=True)
class Box(Shape):
    """A box in any dimension with sides parallel to the axes."""

    low: Sequence[float]
    high: Sequence[float]

    def __post_init__(self) -> None:
        low, high = _numbers(self.low), _numbers(self.high)
        if len(low) != len(high):
            raise InputError(f"The corners of a box must have as many coordinates; got {len(low)} and {len(high)}.")
        if not all(a < b for a, b in zip(low, high, strict=True)):
            raise InputError(f"Every lower bound must be less than its upper bound; got {low} and {high}.")
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)

    @property
    def bounds(self) -> tuple[Numbers, Numbers]:
        return tuple(self.low), tuple(self.high)

    @property
    def surfaces(self) -> tuple[Surface, ...]:
        low, high = self.bounds
        faces = []
        for axis in range(self.dimension):
            normal = tuple(float(i == axis) for i in range(self.dimension))
            faces.append(Face(low, (*high[:axis], low[axis], *high[axis + 1 :]), tuple(-n for n in normal)))
            faces.append(Face((*low[:axis], high[axis], *low[axis + 1 :]), high, normal))
        return tuple(faces)

    def _pieces(self) -> tuple[Piece, ...]:
        # Each face is a whole piece, which saves probing: a box in a hundred dimensions has two hundred.
        return tuple(Piece(face, self, number, 1.0, 1.0) for number, face in enumerate(self.surfaces))

    def _distance(self, x: Tensor) -> Tensor:
        low, high = (x.new_tensor(corner) for corner in self.bounds)
        beyond = torch.maximum(low - x, x - high)
        # Outside, the nearest point may be a corner; inside, it is on the nearest face.
        return torch.linalg.vector_norm(beyond.clamp(min=0), dim=1) + beyond.amax(dim=1).clamp(max=0)

    def lies_outside(self, x: Tensor, relative: float = 1e-4) -> Tensor:
        # Axis by axis, as the sides may have different units.
        exact = double(x)
        low, high = (exact.new_tensor(corner) for corner in self.bounds)
        beyond = torch.maximum(low - exact, exact - high)
        largest = torch.maximum(low.abs(), high.abs())
        return (beyond > relative * (high - low) + 4 * torch.finfo(x.dtype).eps * largest).any(dim=1)


class Interval(Box):
    """An interval from `a` to `b`: a box in one dimension."""

    def __init__(self, a: float, b: float) -> None:
        super().__init__((a,), (b,))


@dataclass(frozen=True)
class Disc(Shape):
    """A disc in the plane."""

    center: Sequence[float]
    radius: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "center", _numbers(self.center))
        if len(self.center) != 2:
            raise InputError(f"The center of a disc must have two coordinates; got {len(self.center)}.")
        if not (math.isfinite(self.radius) and self.radius > 0):
            raise InputError(f"The radius of a disc must be positive and finite; got {self.radius}.")

    @property
    def bounds(self) -> tuple[Numbers, Numbers]:
        return tuple(c - self.radius for c in self.center), tuple(c + self.radius for c in self.center)

    @property
    def surfaces(self) -> tuple[Surface, ...]:
        return (Circle(tuple(self.center), self.radius),)

    def _distance(self, x: Tensor) -> Tensor:
        return _least_distance((self,), x)


class Union(Shape):
    """The union of shapes."""

    def __init__(self, *parts: Shape) -> None:
        self.parts = _same_dimension(parts)

    @property
    def bounds(self) -> tuple[Numbers, Numbers]:
        lows, highs = zip(*(part.bounds for part in self.parts), strict=True)
        return tuple(map(min, zip(*lows, strict=True))), tuple(map(max, zip(*highs, strict=True)))

    @property
    def surfaces(self) -> tuple[Surface, ...]:
        return tuple(surface for part in self.parts for surface in part.surfaces)

    def _distance(self, x: Tensor) -> Tensor:
        return _least_distance(self.parts, x)


class Intersection(Shape):
    """The points that all shapes share."""

    def __init__(self, *parts: Shape) -> None:
        self.parts = _same_dimension(parts)
        low, high = self.bounds
        if not all(a < b for a, b in zip(low, high, strict=True)):
            raise InputError("The shapes of an intersection share no points.")

    @property
    def bounds(self) -> tuple[Numbers, Numbers]:
        lows, highs = zip(*(part.bounds for part in self.parts), strict=True)
        return tuple(map(max, zip(*lows, strict=True))), tuple(map(min, zip(*highs, strict=True)))

    @property
    def surfaces(self) -> tuple[Surface, ...]:
        return tuple(surface for part in self.parts for surface in part.surfaces)

    def _distance(self, x: Tensor) -> Tensor:
        return torch.stack([part._distance(x) for part in self.parts]).amax(dim=0)


class Cutout(Shape):
    """A shape without some holes."""

    def __init__(self, shape: Shape, *holes: Shape) -> None:
        if not holes:
            raise InputError("A cutout needs at least one hole to take away.")
        self.shape, *others = _same_dimension((shape, *holes))
        self.holes = tuple(others)

    @property
    def outside(self) -> Shape:
        """The shape before the holes were cut, to select its part of the boundary for a condition."""
        return self.shape

    @property
    def bounds(self) -> tuple[Numbers, Numbers]:
        return self.shape.bounds

    @property
    def surfaces(self) -> tuple[Surface, ...]:
        return (*self.shape.surfaces, *(surface for hole in self.holes for surface in hole.surfaces))

    def _distance(self, x: Tensor) -> Tensor:
        return torch.maximum(self.shape._distance(x), -_least_distance(self.holes, x))


@dataclass(frozen=True)
class Cylinder(Domain):
    """A shape over an interval of time, the last column; the boundary is that of the shape at all times."""

    space: Shape
    time: Interval

    def __post_init__(self) -> None:
        if not isinstance(self.space, Shape) or not isinstance(self.time, Interval):
            raise InputError(
                f"A cylinder is made of a shape and an Interval of time; got {self.space!r}, {self.time!r}."
            )

    @property
    def bounds(self) -> tuple[Numbers, Numbers]:
        (low, high), (start, end) = self.space.bounds, self.time.bounds
        return low + start, high + end

    def _pieces(self) -> tuple[Piece, ...]:
        return tuple(replace(piece, time=self.time) for piece in self.space.pieces)

    def sample_initial(
        self, n: int, generator: Generator | None = None, device: Device = None, dtype: torch.dtype = torch.float32
    ) -> Tensor:
        """Draw `n` uniform random points of the interior of space at the initial time, (n, d)."""
        self.check_resolution(dtype)
        x = self.space.sample(n, generator, device, dtype)
        return torch.cat([x, torch.full_like(x[:, :1], self.time.low[0])], dim=1)

    def _distance(self, x: Tensor) -> Tensor:
        return torch.maximum(self.space._distance(x[:, :-1]), self.time._distance(x[:, -1:]))

    def lies_outside(self, x: Tensor, relative: float = 1e-4) -> Tensor:
        return self.space.lies_outside(x[:, :-1], relative) | self.time.lies_outside(x[:, -1:], relative)


def _least_distance(shapes: Sequence[Shape], x: Tensor) -> Tensor:
    """The least signed distance to any of the shapes; all discs are computed at once, as domains have many."""
    distances = [shape._distance(x) for shape in shapes if not isinstance(shape, Disc)]
    if discs := [(*shape.center, shape.radius) for shape in shapes if isinstance(shape, Disc)]:
        # One row per disc and one column per point: the minimum over the first axis is several times faster.
        center_x, center_y, radius = x.new_tensor(discs).T[:, :, None]
        from_x, from_y = x[:, 0].contiguous() - center_x, x[:, 1].contiguous() - center_y
        distances.append(((from_x * from_x + from_y * from_y).sqrt() - radius).amin(dim=0))
    return torch.stack(distances).amin(dim=0) if len(distances) > 1 else distances[0]


def _numbers(values: Sequence[float]) -> Numbers:
    coordinates = tuple(float(value) for value in values)
    if not coordinates or not all(map(math.isfinite, coordinates)):
        raise InputError(f"Coordinates must be finite numbers, at least one; got {values!r}.")
    return coordinates


def _same_dimension(shapes: Sequence[Shape]) -> tuple[Shape, ...]:
    if not shapes or not all(isinstance(shape, Shape) for shape in shapes):
        raise InputError(f"Only shapes in space can be combined, at least one; got {shapes!r}.")
    if len(dimensions := {shape.dimension for shape in shapes}) > 1:
        raise InputError(f"Shapes must have the same dimension to be combined; got {sorted(dimensions)}.")
    return tuple(shapes)
