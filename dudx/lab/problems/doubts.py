"""What may be wrong with a problem that is well stated: conditions that are missing, or that contradict each other."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Generator

from dudx.lab.problems.conditions.binding import Bound, Placed
from dudx.lab.problems.conditions.boundary_selection import boundary_of, described, level
from dudx.lab.problems.conditions.frame import Frame
from dudx.lab.problems.conditions.stated import Dirichlet, Equation, Neumann, Robin
from dudx.lab.problems.geometry import Cylinder

_PROBES = 512
#: Values at the start and on the boundary that differ by less, relative to their size, fit.
_FITS = 1e-6

#: Of each unknown function the order of the equation along each input.
Orders = Mapping[str, Mapping[str, int]]


class ProblemWarning(UserWarning):
    """A problem can be trained on, but its solution may not be what it is meant to be."""


def doubts(orders: Orders, frame: Frame, bound: Bound) -> list[str]:
    """Sentences about conditions that are too few, or do not fit each other."""
    measured = {frame.operand(key)[0] for one in bound.data for key in one.given}
    found: list[str] = []
    for output, along in orders.items():
        # With data there is no telling what is enough, nor where unknown functions meet inside.
        if output not in measured and not bound.interfaces:
            found += _too_few_at_the_start(output, along, frame, bound) + _too_few(output, along, frame, bound)
    return found + _jumps(frame, bound)


def _too_few_at_the_start(output: str, along: Mapping[str, int], frame: Frame, bound: Bound) -> list[str]:
    if frame.time is None:
        return []
    name = frame.inputs[frame.time]
    order = along.get(name, 0)
    given = {frame.operand(key) for one in bound.initial for key in one.given if frame.operand(key)[0] == output}
    if len(given) >= order or (not isinstance(frame.domain, Cylinder) and _anywhere(output, frame, bound)):
        return []
    return [
        f"The equation is of order {order} in {name} for {output} and there {_are(len(given))} at the start: its "
        f"solution is not unique; see Initial({output}=...{f', {output}_{name}=...' if order > 1 else ''})."
    ]


def _too_few(output: str, along: Mapping[str, int], frame: Frame, bound: Bound) -> list[str]:
    """In space: as many conditions across an axis as the order, half of them on a curved piece."""
    pieces = boundary_of(frame.domain, bound.periodic)
    counts = {piece.number: _count(output, piece.number, frame, bound) for piece in pieces}
    found = []
    for axis, name in enumerate(frame.inputs):
        order = along.get(name, 0)
        if axis == frame.time or axis in bound.periodic or not order:
            continue
        if order == 1:
            if not _anywhere(output, frame, bound):
                found.append(f"There is no condition on {output}: it is known up to a constant at best.")
            continue
        flat = [piece for piece in pieces if level(piece.surface, axis) is not None]
        round_ = [piece for piece in pieces if all(level(piece.surface, i) is None for i in range(len(frame.inputs)))]
        across = sum(counts[piece.number] for piece in flat)
        bare = next((piece for piece in round_ if counts[piece.number] < order // 2), None)
        if len(flat) == 2 and not round_ and across < order:
            found.append(
                f"The equation is of order {order} in {name} for {output} and there {_are(across)} across it, on "
                f"{' and '.join(described(piece.surface, frame.inputs) for piece in flat)}: its solution may not be "
                "unique."
            )
        elif bare is not None:
            found.append(
                f"The equation is of order {order} for {output} and there {_are(counts[bare.number])} on "
                f"{described(bare.surface, frame.inputs)}: its solution may not be unique."
            )
    return list(dict.fromkeys(found))


def _are(count: int) -> str:
    return {0: "is no condition", 1: "is one condition"}.get(count, f"are {count} conditions")


def _anywhere(output: str, frame: Frame, bound: Bound) -> bool:
    starts = any(frame.operand(key)[0] == output for one in bound.initial for key in one.given)
    return starts or any(_concerns(one, output, frame) for one in bound.placed)


def _count(output: str, piece: int, frame: Frame, bound: Bound) -> int:
    """How many conditions on an unknown function there are on a piece; equations of one's own count for many."""
    on = [one for one in bound.placed if any(p.number == piece for p in one.place.pieces)]
    return sum(_concerns(one, output, frame) for one in on)


def _concerns(one: Placed, output: str, frame: Frame) -> int:
    stated = one.stated
    if isinstance(stated, Dirichlet | Neumann):
        return sum(frame.operand(key)[0] == output for key in stated.given)
    if isinstance(stated, Robin):
        return int((stated.of or frame.outputs[0]) == output)
    return 8 if isinstance(stated, Equation) else 0


def _jumps(frame: Frame, bound: Bound) -> list[str]:
    """Values at the start that are not those on the boundary."""
    found = []
    for start in bound.initial:
        for one in bound.placed:
            if not isinstance(one.stated, Dirichlet) or frame.time is None:
                continue
            points = one.place.sample(_PROBES, Generator().manual_seed(0), torch.device("cpu"), torch.float64).points
            points[:, frame.time] = frame.domain.bounds[0][frame.time]
            if one.place.where is not None:
                points = points[one.place.where(points)]
            for key in (key for key in start.given if key in one.stated.given and len(points)):
                first = frame.value(start.given[key], points, f"{key} at the start")
                then = frame.value(one.stated.given[key], points, f"{key} on the boundary")
                jump = (first - then).abs()
                if float(jump.max()) > _FITS * (1 + float(first.abs().max())):
                    at = points[int(jump.argmax())].tolist()
                    where = ", ".join(f"{n} = {v:.3g}" for n, v in zip(frame.inputs, at, strict=True))
                    found.append(
                        f"The values of {key} at the start and on the boundary differ by {float(jump.max()):.3g} at "
                        f"{where}: the solution jumps there."
                    )
    return found
