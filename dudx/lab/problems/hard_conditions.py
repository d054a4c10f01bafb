"""Conditions that hold by construction: u = g + φ N, with φ zero where u is given and g the value there.

For conditions on the flux see `hard_fluxes`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor, nn

from dudx.errors import InputError
from dudx.lab.problems.boundary_pieces import Piece
from dudx.lab.problems.conditions.boundary_selection import describe_surface
from dudx.lab.problems.conditions.condition_types import Dirichlet, Initial, Neumann, Robin
from dudx.lab.problems.conditions.contradictions import PlacedCondition
from dudx.lab.problems.conditions.variables import ProblemVariables, Value
from dudx.lab.problems.geometry import Box, Cutout
from dudx.lab.problems.hard_fluxes import Column, FaceCondition, between_faces, face_of
from dudx.lab.problems.surfaces import Circle, Face, Segment, Sphere

_PROBES = 1024
#: Values that differ by less, relative to their size, are equal up to rounding.
_EQUAL = 1e-6
#: Two pieces meet if some of a thousand points on one are closer to the other than this fraction of the domain.
_MEETING_DISTANCE = 5e-3

Function = Callable[[Any], Any]


@dataclass(frozen=True)
class _HardValue:
    """A hard condition on one output: a factor that is zero where it holds, its value, and probe points there."""

    factor: Function
    value: Value
    points: Tensor
    where: str


class HardConditions(nn.Module):
    """Transform the outputs of a network so that conditions hold, output by output."""

    def __init__(self, columns: Sequence[Column | None]):
        super().__init__()
        #: The transformation of each output; None leaves it unchanged.
        self.columns = list(columns)

    def forward(self, x: Tensor, network: Callable[[Any], Any]) -> Tensor:
        output, found = network(x), []
        for number, column in enumerate(self.columns):
            u = output[:, number : number + 1]
            found.append(u if column is None else column(x, u, lambda at, i=number: network(at)[:, i : i + 1]))
        return found[0] if len(found) == 1 else torch.cat(found, dim=1)


def hard_conditions(hard: Sequence[PlacedCondition | Initial], variables: ProblemVariables) -> HardConditions | None:
    """Make the module that lets hard conditions hold; None without any, `InputError` where it is impossible."""
    if not hard:
        return None
    by_output: dict[str, list[PlacedCondition | Initial]] = {}
    for one in hard:
        for key in _keys(one, variables):
            output, along = variables.parse_derivative(key)
            if along:
                raise InputError(f"{key} cannot be imposed exactly, only values of {output} can; leave hard off.")
            by_output.setdefault(output, []).append(one)
    return HardConditions(
        [_column(name, by_output[name], variables) if name in by_output else None for name in variables.outputs]
    )


def _keys(one: PlacedCondition | Initial, variables: ProblemVariables) -> list[str]:
    """Return the unknown functions, or derivatives of them, that a condition is on."""
    spec = one if isinstance(one, Initial) else one.spec
    if isinstance(spec, Robin):
        return [spec.output(variables)]
    return list(spec.given) if isinstance(spec, Initial | Dirichlet | Neumann) else []


def _column(output: str, hard: Sequence[PlacedCondition | Initial], variables: ProblemVariables) -> Column:
    """Return the transformation of one output."""
    if any(isinstance(one, PlacedCondition) and isinstance(one.spec, Neumann | Robin) for one in hard):
        return _flux_column(output, hard, variables)
    parts = []
    for one in hard:
        given = one.given if isinstance(one, Initial) else one.spec.given  # type: ignore[attr-defined]
        key = next(key for key in given if variables.parse_derivative(key)[0] == output)
        factor, points, where = _initial(variables) if isinstance(one, Initial) else _boundary(one, variables)
        parts.append(_HardValue(factor, given[key], points, where))
    value, factor = _value_and_factor(parts, variables)
    return lambda x, u, network: factor(x) * u + value(x)


def _flux_column(output: str, hard: Sequence[PlacedCondition | Initial], variables: ProblemVariables) -> Column:
    """Return the transformation of an output with conditions on its flux, on faces along one axis."""
    space, faces = variables.space, dict[tuple[int, int], FaceCondition]()
    if not isinstance(space.outside if isinstance(space, Cutout) else space, Box):
        raise InputError("Conditions on the flux are imposed exactly on the outer faces of a box; leave hard off.")
    for one in hard:
        if isinstance(one, Initial) or one.region.where is not None:
            raise InputError(
                f"A condition on the flux of {output} cannot be imposed exactly together with initial values, nor "
                "where a function is true; leave hard off for one of them."
            )
        spec = one.spec
        if isinstance(spec, Robin):
            found = FaceCondition(_function(spec.a, variables), _function(spec.g, variables))
        else:
            value = _function(spec.given[output], variables)  # type: ignore[attr-defined]
            found = FaceCondition((lambda x: 0.0) if isinstance(spec, Neumann) else None, value)
        for piece in one.region.pieces:
            faces[face_of(piece, space.bounds)] = found
    if len({axis for axis, _ in faces}) > 1:
        raise InputError(
            f"Conditions on the flux of {output} are imposed exactly together with others along one axis only; leave "
            "hard off on the other faces."
        )
    axis = next(iter(faces))[0]
    low, high = (corner[axis] for corner in space.bounds)
    return between_faces(axis, low, high, faces.get((axis, 0)), faces.get((axis, 1)))


def _value_and_factor(parts: Sequence[_HardValue], variables: ProblemVariables) -> tuple[Function, Function]:
    """The value g and the factor φ of one output."""
    inside = variables.domain.sobol(_PROBES, dtype=torch.float64)

    def factor(x: Any) -> Any:
        product = parts[0].factor(x)
        for part in parts[1:]:
            product = product * part.factor(x)
        return product

    if not bool((factor(inside) > 0).all()):
        raise InputError(
            "A condition cannot be imposed exactly on this boundary: a factor that is zero there is zero inside the "
            "domain too; leave hard off."
        )
    for part in parts:  # one value may satisfy all conditions
        if all(_relative_difference(part.value, other, variables) <= _EQUAL for other in parts):
            return _function(part.value, variables), factor
    for one in parts:
        for other in parts:
            if one is not other and float(other.factor(one.points).min()) < _MEETING_DISTANCE:
                raise InputError(
                    f"Values that differ where they meet, {one.where} and {other.where}, cannot both be imposed "
                    "exactly; leave hard off for one of them, or give both the same function."
                )
    return _interpolated(parts, variables), factor


def _interpolated(parts: Sequence[_HardValue], variables: ProblemVariables) -> Function:
    """Interpolate between the values of all conditions, weighted by the distances to them."""
    values = [_function(part.value, variables) for part in parts]

    def value(x: Any) -> Any:
        total = weights = 0.0
        for number, own in enumerate(values):
            weight = math.prod([p.factor(x) for i, p in enumerate(parts) if i != number])
            total, weights = total + weight * own(x), weights + weight
        return total / weights

    return value


def _relative_difference(value: Value, other: _HardValue, variables: ProblemVariables) -> float:
    """The largest difference between a value and that of another condition, relative to its size."""
    wanted = variables.evaluate(other.value, other.points, "hard values")
    difference = (variables.evaluate(value, other.points, "hard values") - wanted).abs().max()
    return float(difference / (1 + wanted.abs().max()))


def _function(value: Value, variables: ProblemVariables) -> Function:
    if not callable(value):
        return lambda x: float(value)
    # Without the unknown constants, which must not be copied together with the network.
    constant_free = ProblemVariables(variables.inputs, variables.outputs, variables.domain)
    return lambda x: constant_free.call(value, x, "hard values")


def _initial(variables: ProblemVariables) -> tuple[Function, Tensor, str]:
    axis = variables.time
    if axis is None:
        raise InputError("Initial needs a time: a domain such as plate * Interval(0, 1), whose last input is the time.")
    low, high = (corner[axis] for corner in variables.domain.bounds)
    points = variables.domain.sobol(_PROBES, dtype=torch.float64)
    points[:, axis] = low
    return lambda x: (x[:, axis : axis + 1] - low) / (high - low), points, "at the initial time"


def _boundary(one: PlacedCondition, variables: ProblemVariables) -> tuple[Function, Tensor, str]:
    if one.region.where is not None:
        raise InputError("A condition is imposed exactly on pieces of boundary, not where a function is true.")
    points = one.region.sample(_PROBES, Generator().manual_seed(0), torch.device("cpu"), torch.float64).points
    low, high = variables.space.bounds
    size = max(b - a for a, b in zip(low, high, strict=True)) / 2
    distances = [_distance(piece, variables) for piece in one.region.pieces]

    def factor(x: Any) -> Any:
        product = 1.0
        for distance in distances:
            d = distance(x)
            product = product * (d / (d + size))
        return product

    return factor, points, f"on {describe_surface(one.region.pieces[0].surface, variables.inputs)}"


def _distance(piece: Piece, variables: ProblemVariables) -> Function:
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
            # Inside, a polynomial: the distance itself is not differentiable at the center.
            return (radius * radius - square) / (2 * radius) if side > 0 else torch.sqrt(square) - radius

        return from_round
    raise InputError(
        f"A condition cannot be imposed exactly on {describe_surface(surface, variables.inputs)}: only on faces, "
        "edges, circles and spheres; leave hard off."
    )
