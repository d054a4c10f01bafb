"""Bind the conditions of a problem to its inputs and domain, as terms of a loss.

Conditions of one form on several pieces of boundary become one: its points are uniform over all of the pieces, and its
values those of the piece that a point is on.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Generator, Tensor

from dudx.errors import InputError
from dudx.lab.problems.boundary_pieces import Piece, exactly, sample_pieces
from dudx.lab.problems.conditions.boundary_selection import BoundaryRegion, parse_plane, select_boundary
from dudx.lab.problems.conditions.condition import Condition, Points, Sampler, subset_sampler
from dudx.lab.problems.conditions.condition_types import (
    BoundarySpec,
    ConditionSpec,
    Data,
    Initial,
    Interface,
    Periodic,
)
from dudx.lab.problems.conditions.contradictions import PlacedCondition, refuse_two_values
from dudx.lab.problems.conditions.variables import ProblemVariables, Value
from dudx.lab.problems.geometry import Box, Cutout, Cylinder


class ConditionSet(tuple[Condition, ...]):
    """Conditions that training uses, and the specifications they were made of."""

    specs: tuple[Condition | ConditionSpec, ...]
    #: Columns along which the solution is periodic.
    periodic: tuple[int, ...]
    placed: tuple[PlacedCondition, ...]
    initial: tuple[Initial, ...]
    data: tuple[Data, ...]
    interfaces: tuple[Interface, ...]
    #: Conditions that hold by construction.
    hard: tuple[PlacedCondition | Initial, ...]


def bind_conditions(conditions: Sequence[Condition | ConditionSpec], variables: ProblemVariables) -> ConditionSet:
    """Bind conditions to a problem; those of another problem are bound anew from their specifications."""
    specs = conditions.specs if isinstance(conditions, ConditionSet) else tuple(conditions)
    for spec in specs:
        if not isinstance(spec, Condition | ConditionSpec):
            raise InputError(f"A condition is Dirichlet, Neumann, Initial or the like; got {type(spec).__name__}.")
    periodic = tuple(sorted({a for spec in specs if isinstance(spec, Periodic) for a in _axes(spec, variables)}))
    placed = [
        PlacedCondition(spec, select_boundary(spec.on, variables, periodic))
        for spec in specs
        if isinstance(spec, BoundarySpec)
    ]
    initial = tuple(spec for spec in specs if isinstance(spec, Initial))
    refuse_two_values(placed, initial, variables)
    names, merged, found = _TermNames(specs), _merge(placed, variables), list[Condition]()
    for spec in specs:
        if isinstance(spec, Condition):
            found.append(spec)
        elif isinstance(spec, Initial) and not spec.hard:
            found.append(
                Condition(names.of(spec), "initial", spec.residual(variables), _initial_sampler(spec, variables))
            )
        elif isinstance(spec, BoundarySpec) and id(spec) in merged:
            found.append(Condition(names.of(spec), "boundary", spec.residual(variables), merged[id(spec)].sample))
        elif isinstance(spec, Interface):
            sampler = _interface_sampler(spec, variables)
            found.append(Condition(names.of(spec), "boundary", spec.residual(variables), sampler))
        elif isinstance(spec, Data):
            data_names = spec.data_names(variables)
            measured = (spec.points, {data_names[key]: value for key, value in spec.given.items()})
            residual = spec.residual(variables)
            found.append(Condition(names.of(spec), "data", residual, subset_sampler(measured), measured))
    bound = ConditionSet(found)
    bound.specs, bound.periodic, bound.placed, bound.initial = specs, periodic, tuple(placed), initial
    bound.data = tuple(spec for spec in specs if isinstance(spec, Data))
    bound.interfaces = tuple(spec for spec in specs if isinstance(spec, Interface))
    bound.hard = (*(one for one in placed if _is_hard(one)), *(spec for spec in initial if spec.hard))
    return bound


def _is_hard(one: PlacedCondition) -> bool:
    return one.spec.hard


class _TermNames:
    """Names of the terms of the loss: boundary conditions of only one kind are "boundary", others go by their kinds."""

    def __init__(self, specs: Sequence[Condition | ConditionSpec]):
        self.taken = {"pde", *(spec.name for spec in specs if isinstance(spec, Condition))}
        self.one_kind = len({type(spec) for spec in specs if isinstance(spec, BoundarySpec)}) == 1

    def of(self, spec: ConditionSpec) -> str:
        default = "boundary" if self.one_kind and isinstance(spec, BoundarySpec) else spec.default_name
        name = first = spec.name or default
        number = 1
        while name in self.taken:
            number += 1
            name = f"{first}_{number}"
        self.taken.add(name)
        return name


def _axes(spec: Periodic, variables: ProblemVariables) -> list[int]:
    space = variables.space
    outside = space.outside if isinstance(space, Cutout) else space
    axes = []
    for name in spec.axes:
        if name not in variables.inputs:
            raise InputError(f"Periodic({name!r}) names no input; the inputs are {', '.join(variables.inputs)}.")
        axes.append(variables.inputs.index(name))
    if not isinstance(outside, Box) or any(axis == variables.time for axis in axes):
        raise InputError("A solution is periodic from one face of a box or an interval in space to the opposite one.")
    return axes


def _initial_sampler(spec: Initial, variables: ProblemVariables) -> Sampler:
    domain, values = variables.domain, spec.values(variables)
    if variables.time is None:
        raise InputError(
            "Initial needs a time: a domain such as plate * Interval(0, 1), whose last input is the time, or an "
            "Interval whose only input is called t."
        )

    def sample(n: int, generator: Generator, device: torch.device, dtype: torch.dtype) -> Points:
        if isinstance(domain, Cylinder):
            points = domain.sample_initial(n, generator, device, dtype)
        else:
            points = torch.full((1, 1), domain.bounds[0][0], device=device, dtype=dtype)
        return points, {name: variables.evaluate(value, points, "initial values") for name, value in values.items()}

    return sample


def _merge(placed: Sequence[PlacedCondition], variables: ProblemVariables) -> dict[int, _MergedConditions]:
    """Merge conditions of one form, by the id of the first specification of each group."""
    found: dict[Hashable, _MergedConditions] = {}
    by_first: dict[int, _MergedConditions] = {}
    normals = variables.data_name("n")
    for number, one in enumerate(placed):
        if _is_hard(one):
            continue
        form = (one.spec.form(variables), one.spec.name)
        # Regions of predicates may overlap, so that each is a term of its own.
        key: Hashable = form if one.region.where is None else (form, number)
        if key not in found:
            takes_normals = normals in one.spec.residual(variables).data
            found[key] = by_first[id(one.spec)] = _MergedConditions(variables, normals if takes_normals else None)
        found[key].members.append(one)
    return by_first


@dataclass
class _MergedConditions:
    """Conditions of one form on several pieces."""

    variables: ProblemVariables
    #: The name that the residual takes normals by, if it does.
    normals: str | None
    members: list[PlacedCondition] = field(default_factory=list)

    def sample(self, n: int, generator: Generator, device: torch.device, dtype: torch.dtype) -> Points:
        """Draw points over the pieces of all members, each with its member's values."""
        points, normals, piece = self._region.sample(n, generator, device, dtype)
        owner = torch.tensor([owner for _, owner in self._owned], device=points.device)[piece]
        data = {} if self.normals is None else {self.normals: normals}
        values = [one.spec.values(self.variables) for one in self.members]
        return points, data | {name: self._value([of[name] for of in values], owner, points) for name in values[0]}

    @cached_property
    def _owned(self) -> list[tuple[Piece, int]]:
        """Pieces in the domain's order, whatever the order of the conditions, each with the number of its member."""
        pairs = [(piece, owner) for owner, one in enumerate(self.members) for piece in one.region.pieces]
        return sorted(pairs, key=lambda pair: pair[0].number)

    @cached_property
    def _region(self) -> BoundaryRegion:
        if len(self.members) == 1:
            return self.members[0].region
        return BoundaryRegion(tuple(piece for piece, _ in self._owned))

    def _value(self, values: Sequence[Value], owner: Tensor, points: Tensor) -> Tensor:
        numbers = [float(value) for value in values if not callable(value)]
        if len(numbers) == len(values):
            return points.new_tensor(numbers)[owner].unsqueeze(1)
        found = torch.zeros_like(points[:, :1])
        for number, value in enumerate(values):
            own = owner == number
            if bool(own.any()):
                found[own] = self.variables.evaluate(value, points[own], "values on the boundary")
        return found


def _interface_sampler(spec: Interface, variables: ProblemVariables) -> Sampler:
    domain, normals_name = variables.domain, variables.data_name("n")
    takes_normals = normals_name in spec.residual(variables).data
    axis, at = parse_plane(spec.at, variables) if isinstance(spec.at, str) else (0, 0.0)

    def surface(n: int, generator: Generator, device: torch.device, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        if isinstance(spec.at, str):
            points = domain.sample(n, generator, device, dtype)
            normals = torch.zeros_like(points)
            points[:, axis], normals[:, axis] = at, 1.0
            return points, normals
        shape = spec.at * domain.time if isinstance(domain, Cylinder) else spec.at
        drawn = sample_pieces(shape.pieces, n, generator, device, dtype)
        return drawn.points, drawn.normals

    def sample(n: int, generator: Generator, device: torch.device, dtype: torch.dtype) -> Points:
        def draw(count: int) -> tuple[Tensor, ...]:
            points, normals = surface(count, generator, device, dtype)
            inside = domain.contains(points)
            return points[inside], normals[inside]

        points, normals = exactly(n, 0.9, draw)
        return points, {normals_name: normals} if takes_normals else {}

    return sample
