"""The boundary of a domain in pieces, and uniform points on them with outward normals."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import NamedTuple, Protocol

import torch
from torch import Generator, Tensor

from dudx.errors import InputError

# How many points measure which share of a bounding box, or of a surface, belongs to a domain.
PROBES = 2**12
# A domain in which this many draws from its bounding box find no point is taken to be empty.
_PATIENCE = 2**22

Numbers = tuple[float, ...]
Device = torch.device | str | None


class Bounded(Protocol):
    """What is asked of a shape whose boundary this is."""

    @property
    def dimension(self) -> int: ...

    @property
    def surfaces(self) -> Sequence[Face | Circle]: ...

    def _step_across(self) -> float: ...

    def _distance(self, x: Tensor) -> Tensor: ...


class Times(Protocol):
    """What is asked of an interval of time."""

    def sample(self, n: int, generator: Generator | None, device: Device, dtype: torch.dtype) -> Tensor: ...


class BoundarySample(NamedTuple):
    """Points on a boundary, their outward normals, and the number of the piece that each lies on."""

    points: Tensor
    normals: Tensor
    piece: Tensor


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
    shape: Bounded
    number: int
    share: float
    #: 1 where all normals of the surface point out of the shape, −1 where into it, 0 where that depends on the point.
    side: float
    time: Times | None = None

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
    shape, time, place = pieces[0].shape, pieces[0].time, placed_on(device, generator, dtype)
    numbers = torch.tensor([piece.number for piece in pieces], device=place)
    sides = torch.tensor([piece.side for piece in pieces], device=place, dtype=dtype)
    measures = torch.tensor([piece.surface.measure for piece in pieces], device=place, dtype=dtype)

    whole = all(piece.side for piece in pieces)

    def draw(count: int) -> tuple[Tensor, Tensor, Tensor]:
        chosen = torch.multinomial(measures, count, replacement=True, generator=generator)
        unit = torch.rand(count, shape.dimension, generator=generator, device=place, dtype=dtype)
        points, normals = located(shape, numbers[chosen], unit)
        if whole:
            return points, normals * sides[chosen, None], chosen
        outward = outward_side(shape, points, normals, numbers[chosen])
        kept = outward != 0
        return points[kept], (normals * outward[:, None])[kept], chosen[kept]

    share = sum(piece.length for piece in pieces) / sum(piece.surface.measure for piece in pieces)
    points, normals, chosen = exactly(n, 1.0 if whole else share, draw)
    if time is not None:
        points = torch.cat([points, time.sample(n, generator, place, dtype)], dim=1)
        normals = torch.cat([normals, torch.zeros_like(normals[:, :1])], dim=1)
    return BoundarySample(points, normals, chosen)


def _table(shape: Bounded, like: Tensor) -> tuple[Tensor, ...]:
    """All surfaces of a shape at once: base (k, d), extent (k, d), normal (k, d) and radius (k, 1)."""
    d = shape.dimension
    return like.new_tensor([surface.row() for surface in shape.surfaces]).split([d, d, d, 1], dim=1)


def located(shape: Bounded, numbers: Tensor, unit: Tensor) -> tuple[Tensor, Tensor]:
    """Points on the surfaces of those numbers, from numbers in [0, 1], and the normals as each surface has them."""
    base, extent, normal, radius = (column[numbers] for column in _table(shape, unit))
    points = base + extent * unit
    if shape.dimension != 2:
        return points, normal
    angle = 2 * math.pi * unit[:, 0]
    direction = torch.stack([angle.cos(), angle.sin()], dim=1)
    return points + radius * direction, torch.where(radius > 0, direction, normal)


def outward_side(shape: Bounded, points: Tensor, normals: Tensor, numbers: Tensor) -> Tensor:
    """1 where the normal points out of the shape, −1 where into it, 0 where the point is not on its boundary."""
    step = shape._step_across()
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


def exactly(n: int, share: float, draw: Callable[[int], tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
    """The first `n` rows of what `draw` yields when asked for as many candidates as will probably do."""
    if isinstance(n, bool) or not isinstance(n, Integral) or n < 1:
        raise InputError(f"The number of points must be a positive integer; got {n!r}.")
    found, count, drawn = [], 0, 0
    while count < n:
        if count == 0 and drawn >= _PATIENCE:
            raise InputError(f"The domain seems to be empty: none of {drawn} points of its bounding box is inside.")
        missing = n - count
        wanted = missing if share == 1 else 1.02 * (missing + 4 * math.sqrt(missing)) / max(share, 1 / PROBES)
        batch = min(math.ceil(wanted), _PATIENCE // 4)
        found.append(draw(batch))
        count, drawn = count + len(found[-1][0]), drawn + batch
    return tuple(torch.cat(columns)[:n] for columns in zip(*found, strict=True))


def placed_on(device: Device, generator: Generator | None, dtype: torch.dtype) -> torch.device:
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
