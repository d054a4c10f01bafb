"""Select the part of a boundary where a condition holds: by shape, by piece, by name or by a predicate."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor

from dudx.errors import InputError
from dudx.lab.problems.boundary_pieces import PROBES, BoundarySample, Piece, exactly, sample_pieces
from dudx.lab.problems.conditions.variables import ProblemVariables
from dudx.lab.problems.geometry import Cutout, Cylinder, Domain, Shape
from dudx.lab.problems.surfaces import Circle, Face, Segment, Sphere, Surface

#: A shape (the part of the domain's boundary on its surface), a piece, a name such as "left", "x=0" or "holes", a list
#: of these, or a function of the inputs by name that is true where the condition holds. None is the whole boundary.
On = Shape | Piece | str | Callable[..., Any] | Sequence[Any] | None

_SIDES = {"left": (0, 0), "right": (0, 1), "bottom": (1, 0), "top": (1, 1), "back": (2, 0), "front": (2, 1)}


@dataclass(frozen=True)
class BoundaryRegion:
    """Pieces of one domain's boundary, or the part of them where a predicate is true.

    Attributes:
        pieces: the pieces; with a predicate, those that it is asked about.
        where: the predicate, from points (N, d) to booleans (N,).
        share: the fraction of the pieces' measure where it is true.
    """

    pieces: tuple[Piece, ...]
    where: Callable[[Tensor], Tensor] | None = None
    share: float = 1.0

    def sample(self, n: int, generator: Generator, device: torch.device, dtype: torch.dtype) -> BoundarySample:
        """Draw `n` points, uniform by length."""
        where = self.where
        if where is None:
            return sample_pieces(self.pieces, n, generator, device, dtype)

        def draw(count: int) -> tuple[Tensor, ...]:
            drawn = sample_pieces(self.pieces, count, generator, device, dtype)
            kept = where(drawn.points)
            return tuple(column[kept] for column in drawn)

        return BoundarySample(*exactly(n, self.share, draw))


def select_boundary(on: On, variables: ProblemVariables, periodic: Sequence[int] = ()) -> BoundaryRegion:
    """The region that `on` stands for, without the faces across which the solution is periodic."""
    there = nonperiodic_pieces(variables, periodic)
    if on is None:
        if not there:
            raise InputError("A condition is on the whole boundary, of which nothing is left; see Periodic.")
        return BoundaryRegion(there)
    if callable(on) and not isinstance(on, Shape):
        return _where(on, variables, there)
    chosen = on if isinstance(on, Sequence) and not isinstance(on, str) else [on]
    found = {id(piece): piece for one in chosen for piece in _pieces(one, variables, there)}
    return BoundaryRegion(tuple(piece for piece in there if id(piece) in found))


def nonperiodic_pieces(variables: ProblemVariables, periodic: Sequence[int] = ()) -> tuple[Piece, ...]:
    """The pieces of boundary, without the two outer faces that periodicity along an axis identifies."""
    space, domain = variables.space, variables.domain

    def identified(piece: Piece, axis: int) -> bool:
        at = plane_coordinate(piece.surface, axis)
        return at is not None and any(_equal(at, corner[axis], axis, space) for corner in space.bounds)

    return tuple(piece for piece in domain.pieces if not any(identified(piece, axis) for axis in periodic))


def _pieces(one: object, variables: ProblemVariables, there: Sequence[Piece]) -> list[Piece]:
    if isinstance(one, Piece):
        found = [piece for piece in there if piece.surface == one.surface]
    elif isinstance(one, Shape):
        found = [piece for piece in there if piece.surface in one.surfaces]
    elif isinstance(one, str):
        found = _named(one, variables, there)
    else:
        raise InputError(
            "A condition is on a shape, a piece of boundary, a name such as 'left' or 'x=0', several of them, or where "
            f"a function of the inputs is true; got {type(one).__name__}."
        )
    if not found:
        what = repr(one) if isinstance(one, str | Shape) else describe_surface(one.surface, variables.inputs)
        shown = ", ".join(describe_surface(piece.surface, variables.inputs) for piece in there[:8]) or "nothing"
        more = ", …" if len(there) > 8 else ""
        raise InputError(f"A condition is on a boundary that does not exist, {what}; there is {shown}{more}.")
    return found


def _named(name: str, variables: ProblemVariables, there: Sequence[Piece]) -> list[Piece]:
    space = variables.space
    groups = {id(piece): getattr(piece.surface, "group", "") for piece in there}
    if name and name in groups.values():
        return [piece for piece in there if groups[id(piece)] == name]
    if any(groups.values()) and name.isidentifier() and name not in _SIDES:
        known = ", ".join(dict.fromkeys(group for group in groups.values() if group))
        raise InputError(f"A condition is on {name!r}; the groups of the mesh are {known}.")
    if name in ("outside", "holes") and isinstance(space, Cutout):
        parts = (space.outside,) if name == "outside" else space.holes
        return [piece for piece in there if any(piece.surface in part.surfaces for part in parts)]
    if name in _SIDES:
        axis, end = _SIDES[name]
        at = space.bounds[end][axis] if axis < space.dimension else None
    else:
        axis, at = parse_plane(name, variables)
        if axis == variables.time and isinstance(variables.domain, Cylinder):
            raise InputError(
                f"{name!r} is a time, not a piece of boundary; values at the initial time are given by Initial."
            )
    return (
        []
        if at is None
        else [piece for piece in there if _equal(plane_coordinate(piece.surface, axis), at, axis, space)]
    )


def parse_plane(text: str, variables: ProblemVariables) -> tuple[int, float]:
    """Split a text such as "x=0.5" into the axis and the number."""
    name, equals, number = (part.strip() for part in text.partition("="))
    try:
        if not equals or name not in variables.inputs:
            raise ValueError
        return variables.inputs.index(name), float(number)
    except ValueError:
        raise InputError(
            f"A boundary is named {', '.join(_SIDES)}, outside, holes, or as in {variables.inputs[0] + '=0'!r} by an "
            f"input and a number; got {text!r}."
        ) from None


def plane_coordinate(surface: Surface, axis: int) -> float | None:
    """The constant coordinate of a flat surface perpendicular to an axis; None for any other surface."""
    if isinstance(surface, Face):
        return surface.low[axis] if axis < len(surface.normal) and surface.normal[axis] else None
    if isinstance(surface, Segment) and axis < 2 and surface.start[axis] == surface.end[axis]:
        return surface.start[axis]
    return None


def _equal(found: float | None, at: float, axis: int, space: Domain) -> bool:
    low, high = (corner[axis] for corner in space.bounds)
    tolerance = 1e-9 * (high - low) + 4 * math.ulp(max(abs(low), abs(high)))
    return found is not None and abs(found - at) <= tolerance


def _where(predicate: Callable[..., Any], variables: ProblemVariables, there: tuple[Piece, ...]) -> BoundaryRegion:
    def where(points: Tensor) -> Tensor:
        found = variables.call(predicate, points, "where a condition holds")
        if not isinstance(found, Tensor) or found.dtype != torch.bool or found.shape != (len(points), 1):
            raise InputError(
                "A function that says where a condition holds returns a truth value for each point, such as "
                "lambda x, y: (x == 0) & (y > 0.5)."
            )
        return found[:, 0]

    if not there:
        raise InputError("A condition is on a part of the boundary, of which nothing is left; see Periodic.")
    probes = sample_pieces(there, PROBES, Generator().manual_seed(0), "cpu", torch.float64)
    share = float(where(probes.points).double().mean())
    if share == 0:
        raise InputError(
            f"A condition is on a boundary that does not exist: its function is false at all of {PROBES} points there."
        )
    return BoundaryRegion(there, where, share)


def describe_surface(surface: Surface, inputs: Sequence[str]) -> str:
    """Describe a surface in words, for messages."""
    for axis, name in enumerate(inputs):
        at = plane_coordinate(surface, axis)
        if at is not None:
            return f"'{name}={at:g}'"
    if isinstance(surface, Circle | Sphere):
        return f"the {type(surface).__name__.lower()} around {surface.center} of radius {surface.radius:g}"
    return f"{surface!r}"
