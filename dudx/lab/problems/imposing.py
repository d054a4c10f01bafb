"""Conditions that hold by construction: u = g + φ N, with φ zero where u is given and g the value there."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor, nn

from dudx.errors import InputError
from dudx.lab.problems.boundary_pieces import Piece
from dudx.lab.problems.conditions.binding import Placed
from dudx.lab.problems.conditions.boundary_selection import described
from dudx.lab.problems.conditions.frame import Frame, Value
from dudx.lab.problems.conditions.stated import Dirichlet, Initial
from dudx.lab.problems.geometry import Cylinder
from dudx.lab.problems.surfaces import Circle, Face, Segment, Sphere

_PROBES = 1024
#: Values that are to be the same may differ by rounding, in single precision as well.
_SAME = 1e-6
#: Pieces of which a thousand points come closer than this share of the domain meet.
_MEET = 5e-3

Function = Callable[[Any], Any]


@dataclass(frozen=True)
class _Part:
    """One hard condition of one output: a factor that is zero there, the value, and points to try it at."""

    factor: Function
    value: Value
    points: Tensor
    where: str


class Imposed(nn.Module):
    """Outputs of a network, some of which are changed so that their conditions hold: points and N in, u out."""

    def __init__(self, columns: Sequence[tuple[Function, Function] | None]):
        super().__init__()
        #: Of each output the value and the factor; None leaves it as it is.
        self.columns = list(columns)

    def forward(self, x: Tensor, output: Tensor) -> Tensor:
        found = []
        for number, given in enumerate(self.columns):
            u = output[:, number : number + 1]
            found.append(u if given is None else given[1](x) * u + given[0](x))
        return found[0] if len(found) == 1 else torch.cat(found, dim=1)


def imposed(hard: Sequence[Placed | Initial], frame: Frame) -> Imposed | None:
    """What lets hard conditions hold; None where there are none, a sentence where it cannot be."""
    if not hard:
        return None
    by_output: dict[str, list[_Part]] = {}
    for one in hard:
        given = one.given if isinstance(one, Initial) else one.stated.given if isinstance(one.stated, Dirichlet) else {}
        for key, value in given.items():
            output, along = frame.operand(key)
            if along:
                raise InputError(f"{key} cannot be imposed exactly, only values of {output} can; leave hard off.")
            factor, points, where = _start(frame) if isinstance(one, Initial) else _boundary(one, frame)
            by_output.setdefault(output, []).append(_Part(factor, value, points, where))
    return Imposed([_column(by_output[name], frame) if name in by_output else None for name in frame.outputs])


def _column(parts: Sequence[_Part], frame: Frame) -> tuple[Function, Function]:
    """The value g and the factor φ of one output."""
    inside = frame.domain.sobol(_PROBES, dtype=torch.float64)

    def factor(x: Any) -> Any:
        product = parts[0].factor(x)
        for part in parts[1:]:
            product = product * part.factor(x)
        return product

    if not bool((factor(inside) > 0).all()):
        raise InputError(
            "A condition cannot be imposed exactly on this boundary: what is zero there is zero inside the domain too; "
            "leave hard off."
        )
    for part in parts:  # one value may suit all conditions
        if all(_differ(part.value, other, frame) <= _SAME for other in parts):
            return _function(part.value, frame), factor
    for one in parts:
        for other in parts:
            if one is not other and float(other.factor(one.points).min()) < _MEET:
                raise InputError(
                    f"Values that differ where they meet, {one.where} and {other.where}, cannot both be imposed "
                    "exactly; leave hard off for one of them, or give both the same function."
                )
    return _between(parts, frame), factor


def _between(parts: Sequence[_Part], frame: Frame) -> Function:
    """The values of all parts, each counting by how near it is."""
    values = [_function(part.value, frame) for part in parts]

    def value(x: Any) -> Any:
        total = weights = 0.0
        for number, own in enumerate(values):
            weight = math.prod([p.factor(x) for i, p in enumerate(parts) if i != number])
            total, weights = total + weight * own(x), weights + weight
        return total / weights

    return value


def _differ(value: Value, other: _Part, frame: Frame) -> float:
    """How far a value is from what another part wants, relative to its size."""
    wanted = frame.value(other.value, other.points, "hard values")
    difference = (frame.value(value, other.points, "hard values") - wanted).abs().max()
    return float(difference / (1 + wanted.abs().max()))


def _function(value: Value, frame: Frame) -> Function:
    if not callable(value):
        return lambda x: float(value)
    domain_free = Frame(frame.inputs, frame.outputs, frame.domain)  # unknown constants are not copied with it
    return lambda x: domain_free.called(value, x, "hard values")


def _start(frame: Frame) -> tuple[Function, Tensor, str]:
    axis = frame.time
    if axis is None:
        raise InputError("Initial needs a time: a domain such as plate * Interval(0, 1), whose last input is the time.")
    low, high = (corner[axis] for corner in frame.domain.bounds)
    points = frame.domain.sobol(_PROBES, dtype=torch.float64)
    points[:, axis] = low
    return lambda x: (x[:, axis : axis + 1] - low) / (high - low), points, "at the start"


def _boundary(one: Placed, frame: Frame) -> tuple[Function, Tensor, str]:
    if one.place.where is not None:
        raise InputError("A condition is imposed exactly on pieces of boundary, not where a function is true.")
    points = one.place.sample(_PROBES, Generator().manual_seed(0), torch.device("cpu"), torch.float64).points
    space = frame.domain.space if isinstance(frame.domain, Cylinder) else frame.domain
    low, high = space.bounds
    size = max(b - a for a, b in zip(low, high, strict=True)) / 2
    distances = [_distance(piece, frame) for piece in one.place.pieces]

    def factor(x: Any) -> Any:
        product = 1.0
        for distance in distances:
            d = distance(x)
            product = product * (d / (d + size))
        return product

    return factor, points, f"on {described(one.place.pieces[0].surface, frame.inputs)}"


def _distance(piece: Piece, frame: Frame) -> Function:
    """A smooth function that is zero on the whole surface, with slope 1, and positive inside the domain."""
    surface = piece.surface
    if isinstance(surface, Face):
        axis = next(i for i, n in enumerate(surface.normal) if n)
        at, inward = surface.low[axis], -surface.normal[axis] * (piece.side or 1.0)
        return lambda x: inward * (x[:, axis : axis + 1] - at)
    if isinstance(surface, Segment):
        (x0, y0), (x1, y1), length = surface.start, surface.end, surface.measure
        a, b, side = -(y1 - y0) / length, (x1 - x0) / length, piece.side or 1.0
        return lambda x: side * (a * (x[:, 0:1] - x0) + b * (x[:, 1:2] - y0))
    if isinstance(surface, Circle | Sphere) and piece.side:
        center, radius, side = surface.center, surface.radius, piece.side

        def from_round(x: Any) -> Any:
            square: Any = 0.0
            for axis, c in enumerate(center):
                square = square + (x[:, axis : axis + 1] - c) * (x[:, axis : axis + 1] - c)
            # Of the squares inside, where the center is no place for a root.
            return (radius * radius - square) / (2 * radius) if side > 0 else torch.sqrt(square) - radius

        return from_round
    raise InputError(
        f"A condition cannot be imposed exactly on {described(surface, frame.inputs)}: only on faces, edges, circles "
        "and spheres; leave hard off."
    )
