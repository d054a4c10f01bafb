"""Domains: who is inside, how far away the boundary is, and uniform points in the interior and on the boundary.

    plate = Box((-0.5, -0.5), (0.5, 0.5)) - Disc((0.3, 0.3), 0.1)
    x = plate.sample(8192, generator)                                      # (8192, 2)
    points, normals, piece = plate.sample_boundary(2048, generator)        # piece: a number into plate.pieces
    space_time = plate * Interval(0, 3)                                    # columns x, y, t

Points are the rows of a tensor (N, d). Normals have length 1 and point out of the domain, so into a hole.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import torch
from torch import Generator, Tensor
from torch.quasirandom import SobolEngine

from dudx.errors import InputError
from dudx.lab.problems.boundary_pieces import (
    PROBES,
    BoundarySample,
    Device,
    Piece,
    exactly,
    located,
    outward_side,
    placed_on,
    sample_pieces,
)
from dudx.lab.problems.surfaces import Circle, Face, Numbers, Surface

__all__ = ["Box", "Circle", "Cutout", "Cylinder", "Disc", "Domain", "Face", "Interval", "Shape", "Union"]
__all__ += ["sample_pieces"]

# The step across a surface that tells its two sides apart, relative to the largest coordinate: far above the
# rounding of single precision, far below any feature of a domain.
_ACROSS = 1e-5


class Domain(ABC):
    """A set of points with a boundary: a shape in space, or a shape over an interval of time."""

    @property
    @abstractmethod
    def bounds(self) -> tuple[Numbers, Numbers]:
        """The lowest and the highest corner of a box around the domain."""

    @abstractmethod
    def _distance(self, x: Tensor) -> Tensor: ...

    @abstractmethod
    def _pieces(self) -> tuple[Piece, ...]: ...

    @property
    def dimension(self) -> int:
        return len(self.bounds[0])

    @cached_property
    def pieces(self) -> tuple[Piece, ...]:
        """The smooth pieces of the boundary, so that each can have its own condition; see `sample_pieces`."""
        return self._pieces()

    def signed_distance(self, x: Tensor) -> Tensor:
        """The distance to the boundary (N,), negative inside.

        It is exact for a box, an interval and a disc. For combinations it is the maximum or the minimum over the
        parts: the sign is right everywhere, and the size is at most the true distance, less where the nearest
        surface of a part is not on the boundary of the whole.
        """
        if x.ndim != 2 or x.shape[1] != self.dimension:
            raise InputError(f"The points of this domain must have shape (N, {self.dimension}); got {tuple(x.shape)}.")
        return self._distance(x)

    def contains(self, x: Tensor) -> Tensor:
        """Which points are inside or on the boundary, as booleans (N,)."""
        return self.signed_distance(x) <= 0

    def sample(
        self, n: int, generator: Generator | None = None, device: Device = None, dtype: torch.dtype = torch.float32
    ) -> Tensor:
        """Exactly `n` uniform random points of the interior, (n, d); the device is the generator's by default."""
        place = placed_on(device, generator, dtype)
        unit = partial(torch.rand, generator=generator, device=place, dtype=dtype)
        return self._accepted(n, lambda count: unit(count, self.dimension))

    def sobol(self, n: int, seed: int = 0, device: Device = None, dtype: torch.dtype = torch.float32) -> Tensor:
        """The first `n` points of a scrambled Sobol sequence that are in the domain, (n, d): even and repeatable."""
        engine, place = SobolEngine(self.dimension, scramble=True, seed=seed), placed_on(device, None, dtype)
        return self._accepted(n, lambda count: engine.draw(count, dtype=dtype).to(place))

    def sample_boundary(
        self, n: int, generator: Generator | None = None, device: Device = None, dtype: torch.dtype = torch.float32
    ) -> BoundarySample:
        """`n` points uniform by length over the whole boundary, the piece counted in the order of `pieces`."""
        return sample_pieces(self.pieces, n, generator, device, dtype)

    def _accepted(self, n: int, unit: Callable[[int], Tensor]) -> Tensor:
        def draw(count: int) -> tuple[Tensor]:
            candidates = self._scaled(unit(count))
            return (candidates[self._distance(candidates) <= 0],)

        return exactly(n, self._share, draw)[0]

    def _scaled(self, unit: Tensor) -> Tensor:
        low, high = (unit.new_tensor(corner) for corner in self.bounds)
        return low + (high - low) * unit

    @cached_property
    def _share(self) -> float:
        """The share of the bounding box that the domain takes up."""
        unit = SobolEngine(self.dimension, scramble=True, seed=0).draw(PROBES, dtype=torch.float64)
        return float(self.contains(self._scaled(unit)).double().mean())


class Shape(Domain):
    """A domain in space, which combines with others by `-` and `|`, and with an interval of time by `*`."""

    @property
    @abstractmethod
    def surfaces(self) -> tuple[Surface, ...]:
        """The whole surfaces of all parts; the boundary is where one side of a surface is inside, the other not."""

    def _pieces(self) -> tuple[Piece, ...]:
        unit = SobolEngine(self.dimension, scramble=True, seed=0).draw(PROBES, dtype=torch.float64)
        pieces = []
        for number, surface in enumerate(self.surfaces):
            numbers = torch.full((PROBES,), number, device=unit.device)
            outward = outward_side(self, *located(self, numbers, unit), numbers)
            share, side = float(outward.abs().mean()), float(outward.mean())
            pieces.append(Piece(surface, self, number, share, side if abs(side) == 1 else 0.0))
        return tuple(piece for piece in pieces if piece.share > 0)

    def _step_across(self) -> float:
        return _ACROSS * max(abs(number) for corner in self.bounds for number in corner)

    def __sub__(self, hole: Shape) -> Cutout:
        return Cutout(self.shape, *self.holes, hole) if isinstance(self, Cutout) else Cutout(self, hole)

    def __or__(self, other: Shape) -> Union:
        return Union(*self.parts, other) if isinstance(self, Union) else Union(self, other)

    def __mul__(self, time: Interval) -> Cylinder:
        return Cylinder(self, time)


@dataclass(frozen=True)
class Box(Shape):
    """A box in any dimension, its sides along the axes."""

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
        # All of each face, which need not be found out: in a hundred dimensions there are two hundred.
        return tuple(Piece(face, self, number, 1.0, 1.0) for number, face in enumerate(self.surfaces))

    def _distance(self, x: Tensor) -> Tensor:
        low, high = (x.new_tensor(corner) for corner in self.bounds)
        beyond = torch.maximum(low - x, x - high)
        # Outside, the nearest point may be a corner; inside, it is on the nearest face.
        return torch.linalg.vector_norm(beyond.clamp(min=0), dim=1) + beyond.amax(dim=1).clamp(max=0)


class Interval(Box):
    """The numbers from `a` to `b`: a box of one dimension."""

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
    """The points that are in at least one of the parts."""

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


class Cutout(Shape):
    """The points of a shape that are in none of the holes."""

    def __init__(self, shape: Shape, *holes: Shape) -> None:
        if not holes:
            raise InputError("A cutout needs at least one hole to take away.")
        self.shape, *others = _same_dimension((shape, *holes))
        self.holes = tuple(others)

    @property
    def outside(self) -> Shape:
        """The shape without its holes, to say that a condition holds on what it has of the boundary."""
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
    """A shape over an interval of time: the columns are those of the shape, then t. The boundary is that of space."""

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
        """`n` uniform random points of the interior of space at the first moment, (n, d)."""
        x = self.space.sample(n, generator, device, dtype)
        return torch.cat([x, torch.full_like(x[:, :1], self.time.low[0])], dim=1)

    def _distance(self, x: Tensor) -> Tensor:
        return torch.maximum(self.space._distance(x[:, :-1]), self.time._distance(x[:, -1:]))


def _least_distance(shapes: Sequence[Shape], x: Tensor) -> Tensor:
    """The least signed distance to any of the shapes; all discs are one expression, as domains have many."""
    distances = [shape._distance(x) for shape in shapes if not isinstance(shape, Disc)]
    if discs := [(*shape.center, shape.radius) for shape in shapes if isinstance(shape, Disc)]:
        # One row a disc and one column a point: the minimum over the first axis is several times faster.
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
