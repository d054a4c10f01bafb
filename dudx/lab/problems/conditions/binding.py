"""From conditions as they are stated to conditions that training uses.

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
from dudx.lab.problems.conditions.bound import Condition, Points, Sampler
from dudx.lab.problems.conditions.boundary_selection import Place, described, place, plane
from dudx.lab.problems.conditions.frame import Frame, Value
from dudx.lab.problems.conditions.stated import Data, Dirichlet, Initial, Interface, OnBoundary, Periodic, Stated
from dudx.lab.problems.geometry import Box, Cutout, Cylinder


@dataclass(frozen=True)
class Placed:
    """A stated condition and where it holds."""

    stated: OnBoundary
    place: Place


class Bound(tuple[Condition, ...]):
    """Conditions that training uses, and what they were made of."""

    stated: tuple[Condition | Stated, ...]
    #: The columns along which the solution is periodic.
    periodic: tuple[int, ...]
    placed: tuple[Placed, ...]
    initial: tuple[Initial, ...]
    data: tuple[Data, ...]
    interfaces: tuple[Interface, ...]
    #: Those that hold by construction.
    hard: tuple[Placed | Initial, ...]


def bind(conditions: Sequence[Condition | Stated], frame: Frame) -> Bound:
    """Bind conditions to a problem, also those of another one, from what was stated there."""
    stated = conditions.stated if isinstance(conditions, Bound) else tuple(conditions)
    for one in stated:
        if not isinstance(one, Condition | Stated):
            raise InputError(f"A condition is Dirichlet, Neumann, Initial or the like; got {type(one).__name__}.")
    periodic = tuple(sorted({axis for one in stated if isinstance(one, Periodic) for axis in _axes(one, frame)}))
    placed = [Placed(one, place(one.on, frame, periodic)) for one in stated if isinstance(one, OnBoundary)]
    _refuse_two_values(placed, frame)
    names, groups, found = _Names(stated), _groups(placed, frame), list[Condition]()
    for one in stated:
        if isinstance(one, Condition):
            found.append(one)
        elif isinstance(one, Initial) and not one.hard:
            found.append(Condition(names.of(one), "initial", one.residual(frame), _initial(one, frame)))
        elif isinstance(one, OnBoundary) and id(one) in groups:
            group = groups[id(one)]
            found.append(Condition(names.of(one), "boundary", one.residual(frame), group.sample))
        elif isinstance(one, Interface):
            found.append(Condition(names.of(one), "boundary", one.residual(frame), _interface(one, frame)))
        elif isinstance(one, Data):
            given = {f"g_{key}": value for key, value in one.given.items()}
            measured = (one.points, given)
            found.append(Condition(names.of(one), "data", one.residual(frame), some_of(measured), measured))
    bound = Bound(found)
    bound.stated, bound.periodic, bound.placed = stated, periodic, tuple(placed)
    bound.initial = tuple(one for one in stated if isinstance(one, Initial))
    bound.data = tuple(one for one in stated if isinstance(one, Data))
    bound.interfaces = tuple(one for one in stated if isinstance(one, Interface))
    bound.hard = (*(one for one in placed if _is_hard(one)), *(one for one in bound.initial if one.hard))
    return bound


def _is_hard(one: Placed) -> bool:
    return isinstance(one.stated, Dirichlet) and one.stated.hard


class _Names:
    """Names of the parts of the loss: the only kind of boundary condition is "boundary", others go by their kinds."""

    def __init__(self, stated: Sequence[Condition | Stated]):
        self.taken = {"pde", *(one.name for one in stated if isinstance(one, Condition))}
        self.alone = len({type(one) for one in stated if isinstance(one, OnBoundary)}) == 1

    def of(self, one: Stated) -> str:
        word = one.name or ("boundary" if self.alone and isinstance(one, OnBoundary) else one.word)
        name, number = word, 1
        while name in self.taken:
            number += 1
            name = f"{word}_{number}"
        self.taken.add(name)
        return name


def _axes(one: Periodic, frame: Frame) -> list[int]:
    space = frame.domain.space if isinstance(frame.domain, Cylinder) else frame.domain
    outside = space.outside if isinstance(space, Cutout) else space
    axes = []
    for name in one.axes:
        if name not in frame.inputs:
            raise InputError(f"Periodic({name!r}) names no input; the inputs are {', '.join(frame.inputs)}.")
        axes.append(frame.inputs.index(name))
    if not isinstance(outside, Box) or any(axis == frame.time for axis in axes):
        raise InputError("A solution is periodic from one face of a box or an interval in space to the opposite one.")
    return axes


def _refuse_two_values(placed: Sequence[Placed], frame: Frame) -> None:
    """One unknown function has one value on a piece of boundary."""
    seen: set[tuple[int, object]] = set()
    for one in placed:
        if not isinstance(one.stated, Dirichlet) or one.place.where is not None:
            continue
        for piece in one.place.pieces:
            for key in one.stated.given:
                at = (piece.number, frame.operand(key))
                if at in seen:
                    where = described(piece.surface, frame.inputs)
                    raise InputError(f"Two conditions give a value to {key} on {where}; say for each where it is on.")
                seen.add(at)


def _initial(one: Initial, frame: Frame) -> Sampler:
    domain, values = frame.domain, one.values(frame)
    if frame.time is None:
        raise InputError(
            "Initial needs a time: a domain such as plate * Interval(0, 1), whose last input is the time, or an "
            "Interval whose only input is called t."
        )

    def sample(n: int, generator: Generator, device: torch.device, dtype: torch.dtype) -> Points:
        if isinstance(domain, Cylinder):
            points = domain.sample_initial(n, generator, device, dtype)
        else:
            points = torch.full((1, 1), domain.bounds[0][0], device=device, dtype=dtype)
        return points, {name: frame.value(value, points, "values at the start") for name, value in values.items()}

    return sample


def _groups(placed: Sequence[Placed], frame: Frame) -> dict[int, _Group]:
    """Conditions of one form, by the first one of each group."""
    found: dict[Hashable, _Group] = {}
    first: dict[int, _Group] = {}
    for number, one in enumerate(placed):
        if _is_hard(one):
            continue
        shape = (one.stated.shape(frame), one.stated.name)
        # Where predicates say, conditions may overlap, so that each is a term of its own.
        key: Hashable = shape if one.place.where is None else (shape, number)
        if key not in found:
            found[key] = first[id(one.stated)] = _Group(frame, "n" in one.stated.residual(frame).data)
        found[key].members.append(one)
    return first


@dataclass
class _Group:
    """Conditions of one form on several pieces."""

    frame: Frame
    takes_normals: bool
    members: list[Placed] = field(default_factory=list)

    def sample(self, n: int, generator: Generator, device: torch.device, dtype: torch.dtype) -> Points:
        """Points over the pieces of all members, each with its member's values."""
        points, normals, piece = self._place.sample(n, generator, device, dtype)
        owner = torch.tensor([owner for _, owner in self._owned], device=points.device)[piece]
        data = {"n": normals} if self.takes_normals else {}
        values = [one.stated.values(self.frame) for one in self.members]
        return points, data | {name: self._value([of[name] for of in values], owner, points) for name in values[0]}

    @cached_property
    def _owned(self) -> list[tuple[Piece, int]]:
        """The pieces in the order of the domain's, however the conditions are ordered, and whose each is."""
        pairs = [(piece, owner) for owner, one in enumerate(self.members) for piece in one.place.pieces]
        return sorted(pairs, key=lambda pair: pair[0].number)

    @cached_property
    def _place(self) -> Place:
        if len(self.members) == 1:
            return self.members[0].place
        return Place(tuple(piece for piece, _ in self._owned))

    def _value(self, values: Sequence[Value], owner: Tensor, points: Tensor) -> Tensor:
        numbers = [float(value) for value in values if not callable(value)]
        if len(numbers) == len(values):
            return points.new_tensor(numbers)[owner].unsqueeze(1)
        found = torch.zeros_like(points[:, :1])
        for number, value in enumerate(values):
            own = owner == number
            if bool(own.any()):
                found[own] = self.frame.value(value, points[own], "values on the boundary")
        return found


def _interface(one: Interface, frame: Frame) -> Sampler:
    domain, takes_normals = frame.domain, "n" in one.residual(frame).data
    axis, at = plane(one.at, frame) if isinstance(one.at, str) else (0, 0.0)

    def surface(n: int, generator: Generator, device: torch.device, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        if isinstance(one.at, str):
            points = domain.sample(n, generator, device, dtype)
            normals = torch.zeros_like(points)
            points[:, axis], normals[:, axis] = at, 1.0
            return points, normals
        shape = one.at * domain.time if isinstance(domain, Cylinder) else one.at
        drawn = sample_pieces(shape.pieces, n, generator, device, dtype)
        return drawn.points, drawn.normals

    def sample(n: int, generator: Generator, device: torch.device, dtype: torch.dtype) -> Points:
        def draw(count: int) -> tuple[Tensor, ...]:
            points, normals = surface(count, generator, device, dtype)
            inside = domain.contains(points)
            return points[inside], normals[inside]

        points, normals = exactly(n, 0.9, draw)
        return points, {"n": normals} if takes_normals else {}

    return sample


def some_of(measured: Points) -> Sampler:
    """Draws from points that are given: all of them where that is not too many."""

    def sample(n: int, generator: Generator, device: torch.device, dtype: torch.dtype) -> Points:
        points, values = measured[0].to(device, dtype), {k: v.to(device, dtype) for k, v in measured[1].items()}
        if len(points) > n:
            chosen = torch.randperm(len(points), generator=generator, device=device)[:n]
            points, values = points[chosen], {key: value[chosen] for key, value in values.items()}
        return points, values

    return sample
