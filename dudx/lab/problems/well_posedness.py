"""Warnings about a problem that is valid: conditions that are missing, or that contradict each other."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Generator, Tensor

from dudx.lab.problems.boundary_pieces import Piece, sample_pieces
from dudx.lab.problems.conditions.boundary_selection import describe_surface, nonperiodic_pieces, plane_coordinate
from dudx.lab.problems.conditions.condition_set import ConditionSet
from dudx.lab.problems.conditions.condition_types import Data, Dirichlet, Equation, Neumann, Robin
from dudx.lab.problems.conditions.contradictions import PlacedCondition
from dudx.lab.problems.conditions.variables import ProblemVariables
from dudx.lab.problems.geometry import Cylinder

#: Points at which initial and boundary values are compared, and points on each piece at which conditions are counted.
_PROBES, _PIECE_PROBES = 512, 64
#: Initial and boundary values that differ by less, relative to their size, agree.
_FITS = 1e-6

#: The order of the equation for each unknown function along each input.
Orders = Mapping[str, Mapping[str, int]]


class ProblemWarning(UserWarning):
    """A problem can be trained on, but its solution may not be the intended one."""


def well_posedness_warnings(
    orders: Orders, functions: Mapping[str, tuple[str, ...]], variables: ProblemVariables, conditions: ConditionSet
) -> list[str]:
    """Describe conditions that are too few, or that do not fit each other, one sentence each.

    Args:
        orders: the orders of the equation.
        functions: unknown functions that depend on some of the inputs only; data select these.
        variables: names and domain.
        conditions: the conditions.
    """
    measured = {variables.parse_derivative(key)[0] for spec in conditions.data for key in spec.given}
    found: list[str] = []
    for output, along in orders.items():
        # With data it is unknown how many conditions are enough, and so it is for functions that meet at an interface.
        if output not in measured and output not in functions and not conditions.interfaces:
            found += _missing_initial_values(output, along, variables, conditions)
            found += _missing_boundary_conditions(output, along, variables, conditions)
    return (
        found
        + _without_data(functions, variables, conditions)
        + _data_outside(variables, conditions)
        + initial_jumps(variables, conditions)
    )


def _missing_initial_values(
    output: str, along: Mapping[str, int], variables: ProblemVariables, conditions: ConditionSet
) -> list[str]:
    if variables.time is None:
        return []
    name = variables.inputs[variables.time]
    order = along.get(name, 0)
    keys = [variables.parse_derivative(key) for spec in conditions.initial for key in spec.given]
    given = len({key for key in keys if key[0] == output})
    ode = not isinstance(variables.domain, Cylinder)
    if given >= order or (ode and any(_number(one, output, variables) for one in conditions.placed)):
        return []
    return [
        f"The equation is of order {order} in {name} for {output} and there {_are(given)} at the start: its "
        f"solution is not unique; see Initial({output}=...{f', {output}_{name}=...' if order > 1 else ''})."
    ]


def _missing_boundary_conditions(
    output: str, along: Mapping[str, int], variables: ProblemVariables, conditions: ConditionSet
) -> list[str]:
    """Compare conditions with orders: across a pair of faces as many as the order, elsewhere half of it per piece."""
    orders = {
        axis: along.get(name, 0)
        for axis, name in enumerate(variables.inputs)
        if axis != variables.time and axis not in conditions.periodic and along.get(name, 0) > 1
    }
    if not orders:
        return []
    pieces = nonperiodic_pieces(variables, conditions.periodic)
    counts = {piece.number: _least_number(output, piece, variables, conditions) for piece in pieces}
    flat = {axis: [p for p in pieces if plane_coordinate(p.surface, axis) is not None] for axis in orders}
    other = [
        p for p in pieces if all(plane_coordinate(p.surface, axis) is None for axis in range(len(variables.inputs)))
    ]
    found = []
    # A user's equation counts for many, and with unknown constants it is not known how many are enough.
    countable = not variables.unknowns and not any(isinstance(one.spec, Equation) for one in conditions.placed)
    for axis, order in orders.items():
        name = variables.inputs[axis]
        across = sum(counts[piece.number] for piece in flat[axis])
        if len(flat[axis]) == 2 and not other:
            if countable and across > order:
                found.append(
                    f"The equation is of order {order} in {name} for {output} and there {_are(across)} across it, on "
                    f"{' and '.join(describe_surface(piece.surface, variables.inputs) for piece in flat[axis])}: they "
                    "may contradict each other."
                )
            if across < order:
                found.append(
                    f"The equation is of order {order} in {name} for {output} and there {_are(across)} across it, on "
                    f"{' and '.join(describe_surface(piece.surface, variables.inputs) for piece in flat[axis])}: its "
                    "solution may not be unique."
                )
            continue
        full = next((piece for piece in other if countable and counts[piece.number] > (order + 1) // 2), None)
        if full is not None:
            found.append(
                f"The equation is of order {order} for {output} and there {_are(counts[full.number])} on "
                f"{describe_surface(full.surface, variables.inputs)}: they may contradict each other."
            )
        bare = next((piece for piece in (*flat[axis], *other) if counts[piece.number] < order // 2), None)
        if bare is not None:
            found.append(
                f"The equation is of order {order} for {output} and there {_are(counts[bare.number])} on "
                f"{describe_surface(bare.surface, variables.inputs)}, or on a part of it: its solution may not be "
                "unique."
            )
    return list(dict.fromkeys(found))


def _are(count: int) -> str:
    return {0: "is no condition", 1: "is one condition"}.get(count, f"are {count} conditions")


def _least_number(output: str, piece: Piece, variables: ProblemVariables, conditions: ConditionSet) -> int:
    """The least number of conditions on an unknown function anywhere on a piece."""
    points: Tensor | None = None
    numbers: Tensor | int = 0
    for one in conditions.placed:
        number = _number(one, output, variables)
        if not number or all(p.number != piece.number for p in one.region.pieces):
            continue
        if one.region.where is None:
            numbers = numbers + number
        else:
            if points is None:
                points = sample_pieces((piece,), _PIECE_PROBES, Generator().manual_seed(0), "cpu", torch.float64).points
            numbers = numbers + number * one.region.where(points).long()
    return numbers if isinstance(numbers, int) else int(numbers.min())


def _number(one: PlacedCondition, output: str, variables: ProblemVariables) -> int:
    """How many conditions on an unknown function a specification makes; a user's equation counts for many."""
    spec = one.spec
    if isinstance(spec, Dirichlet | Neumann):
        return sum(variables.parse_derivative(key)[0] == output for key in spec.given)
    if isinstance(spec, Robin):
        return int(spec.output(variables) == output)
    return 8 if isinstance(spec, Equation) else 0


def _without_data(
    functions: Mapping[str, tuple[str, ...]], variables: ProblemVariables, conditions: ConditionSet
) -> list[str]:
    names = [f"the unknown constant {name}" for name in variables.unknowns]
    names += [f"the unknown function {name}" for name in functions]
    if conditions.data or not names:
        return []
    return [f"There are no data to determine {' and '.join(names)}; see Data(points, ...)."]


def _data_outside(variables: ProblemVariables, conditions: ConditionSet) -> list[str]:
    found = []
    for spec in conditions.data:
        beyond = outside_domain(spec, variables)
        if bool(beyond.any()):
            at = spec.points[int(beyond.double().argmax())].tolist()
            found.append(
                f"{int(beyond.sum())} of {len(beyond)} points of data lie outside of the domain, such as "
                f"{_coordinates(at, variables)}: the equation does not hold there."
            )
    return found


def outside_domain(data: Data, variables: ProblemVariables) -> Tensor:
    """Mark the points of data (N,) that are outside of the domain by more than rounded coordinates explain."""
    return variables.domain.lies_outside(data.points)


def _coordinates(at: list[float], variables: ProblemVariables) -> str:
    return ", ".join(f"{name} = {value:.3g}" for name, value in zip(variables.inputs, at, strict=True))


def initial_jumps(variables: ProblemVariables, conditions: ConditionSet) -> list[str]:
    """Describe initial values that differ from those on the boundary, one sentence each."""
    found = []
    for start in conditions.initial:
        for one in conditions.placed:
            if not isinstance(one.spec, Dirichlet) or variables.time is None:
                continue
            points = one.region.sample(_PROBES, Generator().manual_seed(0), torch.device("cpu"), torch.float64).points
            points[:, variables.time] = variables.domain.bounds[0][variables.time]
            if one.region.where is not None:
                points = points[one.region.where(points)]
            for key in (key for key in start.given if key in one.spec.given and len(points)):
                first = variables.evaluate(start.given[key], points, f"{key} at the initial time")
                then = variables.evaluate(one.spec.given[key], points, f"{key} on the boundary")
                jump = (first - then).abs()
                if float(jump.max()) > _FITS * (1 + float(first.abs().max())):
                    found.append(
                        f"The initial and boundary values of {key} differ by {float(jump.max()):.3g} at "
                        f"{_coordinates(points[int(jump.argmax())].tolist(), variables)}: the solution jumps there."
                    )
    return found
