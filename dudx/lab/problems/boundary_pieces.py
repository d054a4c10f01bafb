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
from dudx.lab.problems.surfaces import Circle, Face, Numbers, Surface, columns_of, rows_located, rows_touched

__all__ = ["BoundarySample", "Circle", "Face", "Numbers", "Piece", "Surface", "sample_pieces"]

# How many points measure which share of a bounding box, or of a surface, belongs to a domain.
PROBES = 2**12
# A domain in which this many draws from its bounding box find no point is taken to be empty.
_PATIENCE = 2**22

Device = torch.device | str | None


class Bounded(Protocol):
    """What is asked of a shape whose boundary this is."""

    @property
    def dimension(self) -> int: ...

    @property
    def surfaces(self) -> Sequence[Surface]: ...

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
class Piece:
    """The part of one surface that bounds a shape, all of it or the share that other surfaces leave."""

    surface: Surface
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


def located(shape: Bounded, numbers: Tensor, unit: Tensor) -> tuple[Tensor, Tensor]:
    """Points on the surfaces of those numbers, from numbers in [0, 1], and the normals as each surface has them."""
    table = _table(shape.surfaces, unit)
    if table is not None:
        return rows_located([column[numbers] for column in table], unit)
    points, normals = torch.empty_like(unit), torch.empty_like(unit)
    for number in numbers.unique().tolist():
        own = numbers == number
        points[own], normals[own] = shape.surfaces[number].located(unit[own])
    return points, normals


def outward_side(shape: Bounded, points: Tensor, normals: Tensor, numbers: Tensor) -> Tensor:
    """1 where the normal points out of the shape, −1 where into it, 0 where the point is not on its boundary."""
    step = shape._step_across()
    inside_behind = shape._distance(points - step * normals) <= 0
    inside_ahead = shape._distance(points + step * normals) <= 0
    outward = inside_behind.to(points.dtype) - inside_ahead.to(points.dtype)
    # Where surfaces of two parts coincide, the first one stands for both; else the length there would count twice.
    table = _table(shape.surfaces, points)
    if table is not None:
        close = rows_touched(table, points, normals, step / 2)
    else:
        close = torch.stack([surface.touches(points, normals, step / 2) for surface in shape.surfaces])
    earlier = torch.arange(len(close), device=points.device)[:, None] < numbers
    return outward.masked_fill((close & earlier).any(dim=0), 0)


def _table(surfaces: Sequence[Surface], like: Tensor) -> Sequence[Tensor] | None:
    """All surfaces of a shape at once, where they are faces and circles, which domains may have many of."""
    rows = [surface.row() for surface in surfaces if isinstance(surface, Face | Circle)]
    return columns_of(rows, like) if len(rows) == len(surfaces) else None


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
