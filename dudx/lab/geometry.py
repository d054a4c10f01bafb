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
from numbers import Integral
from typing import NamedTuple

import torch
from torch import Generator, Tensor
from torch.quasirandom import SobolEngine

from dudx.errors import InputError

# How many points measure which share of a bounding box, or of a surface, belongs to a domain.
_PROBES = 2**12
# A domain in which this many draws from its bounding box find no point is taken to be empty.
_PATIENCE = 2**22
# The step across a surface that tells its two sides apart, relative to the largest coordinate: far above the
# rounding of single precision, far below any feature of a domain.
_ACROSS = 1e-5

Numbers = tuple[float, ...]
Device = torch.device | str | None


class BoundarySample(NamedTuple):
    """Points on a boundary, their outward normals, and the number of the piece that each lies on."""

    points: Tensor
    normals: Tensor
    piece: Tensor


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
        place = _place(device, generator, dtype)
        unit = partial(torch.rand, generator=generator, device=place, dtype=dtype)
        return self._accepted(n, lambda count: unit(count, self.dimension))

    def sobol(self, n: int, seed: int = 0, device: Device = None, dtype: torch.dtype = torch.float32) -> Tensor:
        """The first `n` points of a scrambled Sobol sequence that are in the domain, (n, d): even and repeatable."""
        engine, place = SobolEngine(self.dimension, scramble=True, seed=seed), _place(device, None, dtype)
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

        return _exactly(n, self._share, draw)[0]

    def _scaled(self, unit: Tensor) -> Tensor:
        low, high = (unit.new_tensor(corner) for corner in self.bounds)
        return low + (high - low) * unit

    @cached_property
    def _share(self) -> float:
        """The share of the bounding box that the domain takes up."""
        unit = SobolEngine(self.dimension, scramble=True, seed=0).draw(_PROBES, dtype=torch.float64)
        return float(self.contains(self._scaled(unit)).double().mean())


class Shape(Domain):
    """A domain in space, which combines with others by `-` and `|`, and with an interval of time by `*`."""

    @property
    @abstractmethod
    def surfaces(self) -> tuple[Face | Circle, ...]:
        """The whole surfaces of all parts; the boundary is where one side of a surface is inside, the other not."""

    def _pieces(self) -> tuple[Piece, ...]:
        unit = SobolEngine(self.dimension, scramble=True, seed=0).draw(_PROBES, dtype=torch.float64)
        pieces = []
        for number, surface in enumerate(self.surfaces):
            numbers = torch.full((_PROBES,), number, device=unit.device)
            outward = _outward(self, *_placed(self, numbers, unit), numbers)
            share, side = float(outward.abs().mean()), float(outward.mean())
            pieces.append(Piece(surface, self, number, share, side if abs(side) == 1 else 0.0))
        return tuple(piece for piece in pieces if piece.share > 0)

    @cached_property
    def _step_across(self) -> float:
        return _ACROSS * max(abs(number) for corner in self.bounds for number in corner)

    def __sub__(self, hole: Shape) -> Difference:
        return Difference(self.shape, *self.holes, hole) if isinstance(self, Difference) else Difference(self, hole)

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
    def surfaces(self) -> tuple[Face | Circle, ...]:
        low, high = self.bounds
        faces = []
        for axis in range(self.dimension):
            normal = tuple(float(i == axis) for i in range(self.dimension))
            faces.append(Face(low, (*high[:axis], low[axis], *high[axis + 1 :]), tuple(-n for n in normal)))
            faces.append(Face((*low[:axis], high[axis], *low[axis + 1 :]), high, normal))
        return tuple(faces)

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
    def surfaces(self) -> tuple[Face | Circle, ...]:
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
    def surfaces(self) -> tuple[Face | Circle, ...]:
        return tuple(surface for part in self.parts for surface in part.surfaces)

    def _distance(self, x: Tensor) -> Tensor:
        return _least_distance(self.parts, x)


class Difference(Shape):
    """The points of a shape that are in none of the holes."""

    def __init__(self, shape: Shape, *holes: Shape) -> None:
        if not holes:
            raise InputError("A difference needs at least one hole to take away.")
        self.shape, *others = _same_dimension((shape, *holes))
        self.holes = tuple(others)

    @property
    def bounds(self) -> tuple[Numbers, Numbers]:
        return self.shape.bounds

    @property
    def surfaces(self) -> tuple[Face | Circle, ...]:
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


@dataclass(frozen=True)
class Face:
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
class Circle:
    """A circle in the plane."""

    center: Numbers
    radius: float

    @property
    def measure(self) -> float:
        return 2 * math.pi * self.radius

    def row(self) -> Numbers:
        return *self.center, 0.0, 0.0, 0.0, 0.0, self.radius


@dataclass(frozen=True)
class Piece:
    """The part of one surface that bounds a shape, all of it or the share that other surfaces leave."""

    surface: Face | Circle
    shape: Shape
    number: int
    share: float
    #: 1 where all normals of the surface point out of the shape, −1 where into it, 0 where that depends on the point.
    side: float
    time: Interval | None = None

    @property
    def length(self) -> float:
        """The length of the piece (1 for a point, the area of a face in space), to 1e-3 where it is cut by others."""
        return self.surface.measure * self.share

    def sample(
        self, n: int, generator: Generator | None = None, device: Device = None, dtype: torch.dtype = torch.float32
    ) -> tuple[Tensor, Tensor]:
        """`n` points uniform by length on this piece, and their outward normals."""
        points, normals, _ = sample_pieces((self,), n, generator, device, dtype)
        return points, normals


def sample_pieces(
    pieces: Sequence[Piece],
    n: int,
    generator: Generator | None = None,
    device: Device = None,
    dtype: torch.dtype = torch.float32,
) -> BoundarySample:
    """`n` points uniform by length over some pieces of one domain, and the place of each point's piece in `pieces`."""
    if not pieces or any(p.shape is not pieces[0].shape or p.time != pieces[0].time for p in pieces):
        raise InputError("Give at least one piece of boundary to sample, and pieces of one domain only.")
    shape, time, place = pieces[0].shape, pieces[0].time, _place(device, generator, dtype)
    numbers = torch.tensor([piece.number for piece in pieces], device=place)
    sides = torch.tensor([piece.side for piece in pieces], device=place, dtype=dtype)
    measures = torch.tensor([piece.surface.measure for piece in pieces], device=place, dtype=dtype)

    whole = all(piece.side for piece in pieces)

    def draw(count: int) -> tuple[Tensor, Tensor, Tensor]:
        chosen = torch.multinomial(measures, count, replacement=True, generator=generator)
        unit = torch.rand(count, shape.dimension, generator=generator, device=place, dtype=dtype)
        points, normals = _placed(shape, numbers[chosen], unit)
        if whole:
            return points, normals * sides[chosen, None], chosen
        outward = _outward(shape, points, normals, numbers[chosen])
        kept = outward != 0
        return points[kept], (normals * outward[:, None])[kept], chosen[kept]

    share = sum(piece.length for piece in pieces) / sum(piece.surface.measure for piece in pieces)
    points, normals, chosen = _exactly(n, 1.0 if whole else share, draw)
    if time is not None:
        points = torch.cat([points, time.sample(n, generator, place, dtype)], dim=1)
        normals = torch.cat([normals, torch.zeros_like(normals[:, :1])], dim=1)
    return BoundarySample(points, normals, chosen)


def _table(shape: Shape, like: Tensor) -> tuple[Tensor, ...]:
    """All surfaces of a shape at once: base (k, d), extent (k, d), normal (k, d) and radius (k, 1)."""
    d = shape.dimension
    return like.new_tensor([surface.row() for surface in shape.surfaces]).split([d, d, d, 1], dim=1)


def _placed(shape: Shape, numbers: Tensor, unit: Tensor) -> tuple[Tensor, Tensor]:
    """Points on the surfaces of those numbers, from numbers in [0, 1], and the normals as each surface has them."""
    base, extent, normal, radius = (column[numbers] for column in _table(shape, unit))
    points = base + extent * unit
    if shape.dimension != 2:
        return points, normal
    angle = 2 * math.pi * unit[:, 0]
    direction = torch.stack([angle.cos(), angle.sin()], dim=1)
    return points + radius * direction, torch.where(radius > 0, direction, normal)


def _outward(shape: Shape, points: Tensor, normals: Tensor, numbers: Tensor) -> Tensor:
    """1 where the normal points out of the shape, −1 where into it, 0 where the point is not on its boundary."""
    step = shape._step_across
    inside_behind = shape._distance(points - step * normals) <= 0
    inside_ahead = shape._distance(points + step * normals) <= 0
    outward = inside_behind.to(points.dtype) - inside_ahead.to(points.dtype)
    # Where surfaces of two parts coincide, the first one stands for both; else the length there would count twice.
    base, extent, normal, radius = (column[:, None] for column in _table(shape, points))
    offset = points - torch.minimum(torch.maximum(points, base), base + extent)
    close = (torch.linalg.vector_norm(offset, dim=2) - radius[..., 0]).abs() < step / 2
    parallel = (torch.where(radius > 0, offset / radius, normal) * normals).sum(dim=2).abs() > 0.99
    earlier = torch.arange(len(base), device=points.device)[:, None] < numbers
    return outward.masked_fill((close & parallel & earlier).any(dim=0), 0)


def _least_distance(shapes: Sequence[Shape], x: Tensor) -> Tensor:
    """The least signed distance to any of the shapes; all discs are one expression, as domains have many."""
    distances = [shape._distance(x) for shape in shapes if not isinstance(shape, Disc)]
    if discs := [(*shape.center, shape.radius) for shape in shapes if isinstance(shape, Disc)]:
        # One row a disc and one column a point: the minimum over the first axis is several times faster.
        center_x, center_y, radius = x.new_tensor(discs).T[:, :, None]
        from_x, from_y = x[:, 0].contiguous() - center_x, x[:, 1].contiguous() - center_y
        distances.append(((from_x * from_x + from_y * from_y).sqrt() - radius).amin(dim=0))
    return torch.stack(distances).amin(dim=0) if len(distances) > 1 else distances[0]


def _exactly(n: int, share: float, draw: Callable[[int], tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
    """The first `n` rows of what `draw` yields when asked for as many candidates as will probably do."""
    if isinstance(n, bool) or not isinstance(n, Integral) or n < 1:
        raise InputError(f"The number of points must be a positive integer; got {n!r}.")
    found, count, drawn = [], 0, 0
    while count < n:
        if count == 0 and drawn >= _PATIENCE:
            raise InputError(f"The domain seems to be empty: none of {drawn} points of its bounding box is inside.")
        missing = n - count
        wanted = missing if share == 1 else 1.02 * (missing + 4 * math.sqrt(missing)) / max(share, 1 / _PROBES)
        batch = min(math.ceil(wanted), _PATIENCE // 4)
        found.append(draw(batch))
        count, drawn = count + len(found[-1][0]), drawn + batch
    return tuple(torch.cat(columns)[:n] for columns in zip(*found, strict=True))


def _place(device: Device, generator: Generator | None, dtype: torch.dtype) -> torch.device:
    """Where to make tensors: the device asked for, else the generator's, else torch's default."""
    if dtype not in (torch.float32, torch.float64):
        # Half precision cannot tell the two sides of a boundary apart.
        raise InputError(f"Points are drawn in float32 or float64; got {dtype}: convert them afterwards with .to().")
    if device is None:
        return torch.get_default_device() if generator is None else generator.device
    place = torch.device(device)
    if generator is not None and generator.device.type != place.type:
        raise InputError(f"The generator is on {generator.device} and the points on {place}; use one device for both.")
    return place


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
