"""Where a condition holds: pieces of boundary, by shape, by name or by a predicate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor

from dudx.errors import InputError
from dudx.lab.problems.boundary_pieces import PROBES, BoundarySample, Piece, exactly, sample_pieces
from dudx.lab.problems.conditions.frame import Frame
from dudx.lab.problems.geometry import Cutout, Cylinder, Domain, Shape
from dudx.lab.problems.surfaces import Circle, Face, Segment, Sphere, Surface

#: A shape (the boundary it has of the domain's), a piece, a name such as "left", "x=0" or "holes", several of them, or
#: a function of the inputs by name that is true where the condition holds. None is everywhere.
On = Shape | Piece | str | Callable[..., Any] | Sequence[Any] | None

_SIDES = {"left": (0, 0), "right": (0, 1), "bottom": (1, 0), "top": (1, 1), "back": (2, 0), "front": (2, 1)}


@dataclass(frozen=True)
class Place:
    """Pieces of one domain's boundary, or the part of them where a predicate is true."""

    pieces: tuple[Piece, ...]
    where: Callable[[Tensor], Tensor] | None = None
    share: float = 1.0

    def sample(self, n: int, generator: Generator, device: torch.device, dtype: torch.dtype) -> BoundarySample:
        """`n` points, uniform by length."""
        where = self.where
        if where is None:
            return sample_pieces(self.pieces, n, generator, device, dtype)

        def draw(count: int) -> tuple[Tensor, ...]:
            drawn = sample_pieces(self.pieces, count, generator, device, dtype)
            kept = where(drawn.points)
            return tuple(column[kept] for column in drawn)

        return BoundarySample(*exactly(n, self.share, draw))


def place(on: On, frame: Frame, periodic: Sequence[int] = ()) -> Place:
    """What `on` stands for on the boundary of a domain, without the faces across which the solution is periodic."""
    there = boundary_of(frame.domain, periodic)
    if on is None:
        if not there:
            raise InputError("A condition is on the whole boundary, of which nothing is left; see Periodic.")
        return Place(there)
    if callable(on) and not isinstance(on, Shape):
        return _where(on, frame, there)
    chosen = on if isinstance(on, Sequence) and not isinstance(on, str) else [on]
    found = {id(piece): piece for one in chosen for piece in _pieces(one, frame, there)}
    return Place(tuple(piece for piece in there if id(piece) in found))


def boundary_of(domain: Domain, periodic: Sequence[int] = ()) -> tuple[Piece, ...]:
    """The pieces of boundary, without those across which the solution is periodic."""
    return tuple(p for p in domain.pieces if not any(level(p.surface, axis) is not None for axis in periodic))


def _pieces(one: object, frame: Frame, there: Sequence[Piece]) -> list[Piece]:
    if isinstance(one, Piece):
        found = [piece for piece in there if piece.surface == one.surface]
    elif isinstance(one, Shape):
        found = [piece for piece in there if piece.surface in one.surfaces]
    elif isinstance(one, str):
        found = _named(one, frame, there)
    else:
        raise InputError(
            "A condition is on a shape, a piece of boundary, a name such as 'left' or 'x=0', several of them, or where "
            f"a function of the inputs is true; got {type(one).__name__}."
        )
    if not found:
        what = repr(one) if isinstance(one, str | Shape) else described(one.surface, frame.inputs)
        shown = ", ".join(described(piece.surface, frame.inputs) for piece in there[:8]) or "nothing"
        more = ", …" if len(there) > 8 else ""
        raise InputError(f"A condition is on a boundary that does not exist, {what}; there is {shown}{more}.")
    return found


def _named(name: str, frame: Frame, there: Sequence[Piece]) -> list[Piece]:
    space = frame.domain.space if isinstance(frame.domain, Cylinder) else frame.domain
    if name in ("outside", "holes") and isinstance(space, Cutout):
        parts = (space.outside,) if name == "outside" else space.holes
        return [piece for piece in there if any(piece.surface in part.surfaces for part in parts)]
    if name in _SIDES:
        axis, end = _SIDES[name]
        at = space.bounds[end][axis] if axis < space.dimension else None
    else:
        axis, at = plane(name, frame)
        if axis == frame.time and isinstance(frame.domain, Cylinder):
            raise InputError(f"{name!r} is a time, not a piece of boundary; values at the start are given by Initial.")
    return [] if at is None else [piece for piece in there if _equal(level(piece.surface, axis), at)]


def plane(text: str, frame: Frame) -> tuple[int, float]:
    """The axis and the number of a text such as "x=0.5"."""
    name, equals, number = (part.strip() for part in text.partition("="))
    try:
        if not equals or name not in frame.inputs:
            raise ValueError
        return frame.inputs.index(name), float(number)
    except ValueError:
        raise InputError(
            f"A boundary is named {', '.join(_SIDES)}, outside, holes, or as in {frame.inputs[0] + '=0'!r} by an input "
            f"and a number; got {text!r}."
        ) from None


def level(surface: Surface, axis: int) -> float | None:
    """The coordinate that is the same everywhere on a flat surface across an axis."""
    if isinstance(surface, Face):
        return surface.low[axis] if axis < len(surface.normal) and surface.normal[axis] else None
    if isinstance(surface, Segment) and axis < 2 and surface.start[axis] == surface.end[axis]:
        return surface.start[axis]
    return None


def _equal(found: float | None, at: float) -> bool:
    return found is not None and abs(found - at) <= 1e-12 * max(1.0, abs(at))


def _where(predicate: Callable[..., Any], frame: Frame, there: tuple[Piece, ...]) -> Place:
    def where(points: Tensor) -> Tensor:
        found = frame.called(predicate, points, "where a condition holds")
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
    return Place(there, where, share)


def described(surface: Surface, inputs: Sequence[str]) -> str:
    """A surface in words."""
    for axis, name in enumerate(inputs):
        at = level(surface, axis)
        if at is not None:
            return f"'{name}={at:g}'"
    if isinstance(surface, Circle | Sphere):
        return f"the {type(surface).__name__.lower()} around {surface.center} of radius {surface.radius:g}"
    return f"{surface!r}"
