"""Refuse conditions that give two values to the same quantity at the same place."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import torch
from torch import Generator

from dudx.errors import InputError
from dudx.lab.problems.boundary_pieces import Piece, sample_pieces
from dudx.lab.problems.conditions.boundary_selection import BoundaryRegion, describe_surface
from dudx.lab.problems.conditions.condition_types import BoundarySpec, Dirichlet, Initial, Neumann, Robin
from dudx.lab.problems.conditions.variables import ProblemVariables, Value

#: Values that differ by less, relative to the larger one, are equal up to rounding.
_EQUAL = 1e-6
#: Points on a piece at which two conditions with predicates are compared.
_PROBES = 1024


@dataclass(frozen=True)
class PlacedCondition:
    """A boundary condition and the region where it holds."""

    spec: BoundarySpec
    region: BoundaryRegion


def refuse_two_values(
    placed: Sequence[PlacedCondition], initial: Sequence[Initial], variables: ProblemVariables
) -> None:
    """Raise `InputError` where two conditions of one kind give values to one quantity.

    On a whole piece of boundary there may be one condition for each quantity. Regions of predicates may overlap where
    the values agree.
    """
    started: set[Hashable] = set()
    for spec in initial:
        for key in spec.given:
            quantity = variables.parse_derivative(key)
            if quantity in started:
                raise InputError(f"Two conditions give a value to {key} at the initial time; leave one of them out.")
            started.add(quantity)
    claims: dict[Hashable, list[tuple[PlacedCondition, str, Value]]] = {}
    for one in placed:
        for quantity, key, value in _quantities(one.spec, variables):
            for piece in one.region.pieces:
                claims.setdefault((piece.number, quantity), []).append((one, key, value))
    for (number, _), claimed in claims.items():  # type: ignore[misc]
        for (one, key, value), (other, _, second) in combinations(claimed, 2):
            piece = next(piece for piece in one.region.pieces if piece.number == number)
            if _contradict(one.region, value, other.region, second, piece, variables):
                where = describe_surface(piece.surface, variables.inputs)
                raise InputError(f"Two conditions give a value to {key} on {where}; say for each where it is on.")


def _quantities(spec: BoundarySpec, variables: ProblemVariables) -> Iterator[tuple[Hashable, str, Value]]:
    """The quantities that a condition gives values to: a hashable key, the name in errors, and the value."""
    if isinstance(spec, Dirichlet | Neumann):
        for key, value in spec.given.items():
            name = f"the normal derivative of {key}" if isinstance(spec, Neumann) else key
            yield (type(spec), variables.parse_derivative(key)), name, value
    elif isinstance(spec, Robin):
        output = spec.output(variables)
        yield (Robin, output, spec.a), f"the normal derivative of {output}", spec.g


def _contradict(
    one: BoundaryRegion,
    value: Value,
    other: BoundaryRegion,
    second: Value,
    piece: Piece,
    variables: ProblemVariables,
) -> bool:
    if one.where is None and other.where is None:
        return True
    points = sample_pieces((piece,), _PROBES, Generator().manual_seed(0), "cpu", torch.float64).points
    for region in (one, other):
        if region.where is not None:
            points = points[region.where(points)]
    if not len(points):
        return False
    first = variables.evaluate(value, points, "values on the boundary")
    then = variables.evaluate(second, points, "values on the boundary")
    larger = torch.maximum(first.abs(), then.abs()).max()
    return bool((first - then).abs().max() > _EQUAL * larger)
