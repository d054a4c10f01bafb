"""Pieces of the boundary of a domain, and uniform points on them with outward normals."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Generator, Tensor

from dudx.errors import InputError, whole_number
from dudx.lab.problems.surfaces import Circle, Face, Numbers, Surface, columns_of, rows_located, rows_touched

__all__ = ["BoundarySample", "Circle", "Face", "Numbers", "Piece", "Surface", "sample_pieces"]

#: The number of points that measure the share of a bounding box, or of a surface, that belongs to a domain.
PROBES = 2**12
#: A domain in which this many draws from its bounding box find no point is taken to be empty.
_PATIENCE = 2**22

Device = torch.device | str | None


class BoundedShape(Protocol):
    """The part of a shape's interface that its boundary needs."""

    @property
    def dimension(self) -> int: ...

    @property
    def surfaces(self) -> Sequence[Surface]: ...

    def _step_across(self, dtype: torch.dtype) -> float: ...

    def _distance(self, x: Tensor) -> Tensor: ...


class TimeInterval(Protocol):
    """The part of an interval's interface that a boundary in space and time needs."""

    def sample(self, n: int, generator: Generator | None, device: Device, dtype: torch.dtype) -> Tensor: ...


class BoundarySample(NamedTuple):
    """Points on a boundary, their outward normals, and the number of the piece that each lies on."""

    points: Tensor
    normals: Tensor
    piece: Tensor


@dataclass(frozen=True)
class Piece:
    """The part of one surface that bounds a shape.

    Attributes:
        surface: the whole surface.
        shape: the shape that it bounds.
        number: the index of the surface among those of the shape.
        share: the fraction of the surface that is boundary, which other surfaces may have cut.
        side: 1 if all normals of the surface point out of the shape, -1 if into it, 0 if that depends on the point.
        time: the interval of time, for a boundary in space and time.
    """

    surface: Surface
    shape: BoundedShape
    number: int
    share: float
    side: float
    time: TimeInterval | None = None

    @property
    def length(self) -> float:
        """The length of the piece (1 for a point, the area in space), accurate to 1e-3 where other surfaces cut it."""
        return self.surface.measure * self.share

    def sample(
        self, n: int, generator: Generator | None = None, device: Device = None, dtype: torch.dtype = torch.float32
    ) -> tuple[Tensor, Tensor]:
        """Draw `n` points uniform by length on this piece, with their outward normals."""
        points, normals, _ = sample_pieces((self,), n, generator, device, dtype)
        return points, normals


def sample_pieces(
    pieces: Sequence[Piece],
    n: int,
    generator: Generator | None = None,
    device: Device = None,
    dtype: torch.dtype = torch.float32,
) -> BoundarySample:
    """Draw `n` points uniform by length over pieces of one domain, each with the index of its piece in `pieces`."""
    if not pieces or any(p.shape is not pieces[0].shape or p.time != pieces[0].time for p in pieces):
        raise InputError("Give at least one piece of boundary to sample, and pieces of one domain only.")
    shape, time, place = pieces[0].shape, pieces[0].time, placed_on(device, generator, dtype)
    numbers = torch.tensor([piece.number for piece in pieces], device=place)
    sides = torch.tensor([piece.side for piece in pieces], device=place, dtype=dtype)
    largest = max(piece.surface.measure for piece in pieces)
    measures = torch.tensor([piece.surface.measure / largest for piece in pieces], device=place, dtype=dtype)

    whole = all(piece.side for piece in pieces)

    def draw(count: int) -> tuple[Tensor, Tensor, Tensor]:
        chosen = torch.multinomial(measures, count, replacement=True, generator=generator)
        unit = torch.rand(count, shape.dimension, generator=generator, device=place, dtype=dtype)
        points, normals = located(shape, numbers[chosen], double(unit))
        if whole:
            return points.to(dtype), normals.to(dtype) * sides[chosen, None], chosen
        outward = outward_side(shape, points, normals, numbers[chosen])
        kept = outward != 0
        return points[kept].to(dtype), (normals * outward[:, None])[kept].to(dtype), chosen[kept]

    share = sum(piece.length for piece in pieces) / sum(piece.surface.measure for piece in pieces)
    points, normals, chosen = exactly(n, 1.0 if whole else share, draw)
    if time is not None:
        points = torch.cat([points, time.sample(n, generator, place, dtype)], dim=1)
        normals = torch.cat([normals, torch.zeros_like(normals[:, :1])], dim=1)
    return BoundarySample(points, normals, chosen)


def located(shape: BoundedShape, numbers: Tensor, unit: Tensor) -> tuple[Tensor, Tensor]:
    """Points on the surfaces with those indices, from numbers in [0, 1], and the surfaces' normals there."""
    table = _table(shape.surfaces, unit)
    if table is not None:
        return rows_located([column[numbers] for column in table], unit)
    points, normals = torch.empty_like(unit), torch.empty_like(unit)
    for number in numbers.unique().tolist():
        own = numbers == number
        points[own], normals[own] = shape.surfaces[number].located(unit[own])
    return points, normals


def outward_side(shape: BoundedShape, points: Tensor, normals: Tensor, numbers: Tensor) -> Tensor:
    """1 where the normal points out of the shape, -1 where into it, 0 where the point is not on its boundary."""
    step = shape._step_across(points.dtype)
    inside_behind = shape._distance(points - step * normals) <= 0
    inside_ahead = shape._distance(points + step * normals) <= 0
    outward = inside_behind.to(points.dtype) - inside_ahead.to(points.dtype)
    # Where surfaces of two parts coincide, only the first one counts; otherwise the length would count twice.
    table = _table(shape.surfaces, points)
    if table is not None:
        close = rows_touched(table, points, normals, step / 2)
    else:
        close = torch.stack([surface.touches(points, normals, step / 2) for surface in shape.surfaces])
    earlier = torch.arange(len(close), device=points.device)[:, None] < numbers
    return outward.masked_fill((close & earlier).any(dim=0), 0)


def _table(surfaces: Sequence[Surface], like: Tensor) -> Sequence[Tensor] | None:
    """Rows of numbers for all surfaces of a shape, if they are faces and circles, of which domains may have many."""
    rows = [surface.row() for surface in surfaces if isinstance(surface, Face | Circle)]
    return columns_of(rows, like) if len(rows) == len(surfaces) else None


def exactly(n: int, share: float, draw: Callable[[int], tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
    """Call `draw`, which rejects some candidates, until there are exactly `n` rows; `share` is the expected yield."""
    whole_number(n, "The number of points")
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


def double(x: Tensor) -> Tensor:
    """Convert to double precision, in which geometry is computed, on devices that have it."""
    return x if x.device.type == "mps" else x.double()


def placed_on(device: Device, generator: Generator | None, dtype: torch.dtype) -> torch.device:
    """The device of new tensors: the one asked for, else the generator's, else torch's default."""
    if dtype not in (torch.float32, torch.float64):
        # Half precision cannot tell the two sides of a boundary apart.
        raise InputError(f"Points are drawn in float32 or float64; got {dtype}: convert them afterwards with .to().")
    if device is None:
        return torch.get_default_device() if generator is None else generator.device
    place = torch.device(device)
    if generator is not None and generator.device.type != place.type:
        raise InputError(f"The generator is on {generator.device} and the points on {place}; use one device for both.")
    return place
