"""Differences that stay inside a domain: near its boundary steps shrink, and below a floor stencils look one way."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dudx.backend import tensor_checks
from dudx.engines.difference.shifted_batches import Frame, Stencil, Step, distinct_steps, placed, span, stencil, wider
from dudx.engines.difference.stencils import reach
from dudx.engines.request import Request
from dudx.errors import InputError, UnsupportedError
from dudx.network import model_checks
from dudx.network.model_checks import Model
from dudx.operators import Directional, Operator

#: The share of the room up to the boundary that a shrunken stencil takes: rounding must not put its end outside.
_OF_THE_ROOM = 0.99

Distance = Callable[[Tensor], Tensor]


def distance_of(inside: Any) -> Distance:
    """The signed distance to a boundary, negative inside, of a domain or of a function that gives it."""
    found = getattr(inside, "signed_distance", inside)
    if not callable(found):
        raise InputError(
            "inside= takes a domain with a method signed_distance, or a function from points (N, d) to signed "
            f"distances (N,), negative inside; got {type(inside).__name__}."
        )

    def distance(x: Tensor) -> Tensor:
        with torch.no_grad():
            values = found(x.detach())
        if not isinstance(values, Tensor) or values.shape not in ((len(x),), (len(x), 1)):
            got = f"shape {tuple(values.shape)}" if isinstance(values, Tensor) else type(values).__name__
            raise InputError(f"The signed distance must be one number a point, shape ({len(x)},); got {got}.")
        return values.flatten()

    return distance


@dataclass(frozen=True)
class _Ray:
    """A line through each point on which nodes lie: an axis or a direction, with the widths of its stencils."""

    frame: Frame
    axis: int
    both: int
    one: int


def derivatives_inside(
    model: Model,
    x: Tensor,
    request: Request,
    steps: Mapping[int, Step],
    accuracy: int,
    inside: Any,
    floor: float,
) -> list[Tensor]:
    """Every operator at the points, with no row outside: one forward pass, in which points have their own stencils."""
    if not tensor_checks.readable(x):
        raise UnsupportedError(
            "Where the points lie decides on their stencils inside of a domain, and torch.func.vmap hides it: compute "
            "one batch after the other, or leave out inside=."
        )
    operators = request.operators
    distinct, step_of = distinct_steps(steps)
    rays, mixed = _rays(operators, dict(step_of), accuracy)
    precise = wider(x.dtype)
    widths = [torch.as_tensor(step, dtype=precise, device=x.device).expand(x.shape) for step in distinct]
    spans = {ray.frame: span(ray.frame, widths, request.vectors) for ray in rays}
    room = _Room(x.detach(), distance_of(inside), floor)
    cap = torch.ones(len(x), dtype=precise, device=x.device)
    while True:
        chosen = {ray: room.fitted(ray, _unit(ray, spans), cap) for ray in rays}
        groups = _groups(operators, step_of, accuracy, x.shape[1], rays, chosen, spans)
        outside = room.outside(groups) if mixed else None
        if outside is None or not bool(outside.any()):
            break
        cap = torch.where(outside, cap / 2, cap)
        if bool((cap < room.least).any()):
            raise room.none(int((cap < room.least).nonzero()[0]), "the mixed derivatives")
    return _evaluated(model, x, groups)


@dataclass(frozen=True)
class _Group:
    """The points whose stencils look the same ways."""

    points: Tensor
    layout: Stencil
    shifts: Tensor
    weights: Tensor
    scales: Tensor


def _rays(operators: Sequence[Operator], number: Mapping[int, int], accuracy: int) -> tuple[list[_Ray], bool]:
    """The lines that nodes lie on, and whether there are nodes beside them."""
    orders: dict[tuple[Frame, int], set[int]] = {}
    mixed = False
    for term in {term for operator in operators for term in operator.terms}:
        if isinstance(term, Directional):
            orders.setdefault((Frame(number[term.order], term.slot), 0), set()).add(term.order)
            continue
        mixed = mixed or len(set(term.axes)) > 1
        for axis in set(term.axes):
            orders.setdefault((Frame(number[term.order]), axis), set()).add(term.axes.count(axis))
    return [
        _Ray(frame, axis, max(reach(n, accuracy) for n in found), max(reach(n, accuracy, 1) for n in found))
        for (frame, axis), found in sorted(orders.items(), key=repr)
    ], mixed


def _unit(ray: _Ray, spans: Mapping[Frame, tuple[Tensor, Tensor]]) -> Tensor:
    """The displacement of one step along a ray, (B, d)."""
    shift = spans[ray.frame][0]
    if ray.frame.slot is not None:
        return shift
    unit = torch.zeros_like(shift)
    unit[:, ray.axis] = shift[:, ray.axis]
    return unit


class _Room:
    """How much room each point has inside."""

    def __init__(self, x: Tensor, distance: Distance, floor: float):
        self.x, self.distance, self.floor, self.least = x, distance, floor, floor**2
        own = distance(x)
        # Points on a boundary may lie outside by rounding, and then their stencils may by as much.
        beyond = own > 16 * torch.finfo(x.dtype).eps * (1 + x.abs().amax(dim=1))
        if bool((beyond | own.isnan()).any()):
            row = int((beyond | own.isnan()).nonzero()[0])
            raise InputError(
                f"Row {row} of the points lies outside of the domain given as inside=, at a signed distance of "
                f"{float(own[row]):.2e}; take points inside or on the boundary."
            )
        self.allowed, self.depth = own.clamp(min=0), (-own).clamp(min=0)

    def fitted(self, ray: _Ray, unit: Tensor, cap: Tensor) -> tuple[Tensor, Tensor]:
        """For each point the way its stencil on a ray looks, and the factor by which its step shrinks."""
        side = torch.zeros(len(self.x), dtype=torch.long, device=self.x.device)
        factor = cap.clone()
        length = torch.linalg.vector_norm(unit, dim=1)
        fit = _OF_THE_ROOM * self.depth.to(unit.dtype) / (ray.both * length).clamp(min=torch.finfo(unit.dtype).tiny)
        open_ = torch.arange(len(self.x), device=self.x.device)
        for way, share in _candidates(self.floor, self.least):
            tried = (fit.minimum(cap) if share is None else share * cap)[open_]
            fits = self._fits(ray, unit[open_] * tried.unsqueeze(1), open_, way)
            if share is None:
                fits = fits & (tried >= self.floor)
            side[open_[fits]], factor[open_[fits]] = way, tried[fits]
            open_ = open_[~fits]
            if not len(open_):
                return side, factor
        what = f"axis {ray.axis}" if ray.frame.slot is None else "the direction"
        raise self.none(int(open_[0]), what)

    def _fits(self, ray: _Ray, unit: Tensor, which: Tensor, way: int) -> Tensor:
        offsets = range(way, way * ray.one + way, way) if way else [k for k in range(-ray.both, ray.both + 1) if k]
        shifts = torch.stack([k * unit for k in offsets]).to(self.x.dtype)
        rows = self.x[which] + shifts
        return (self.distance(rows.reshape(-1, rows.shape[2])).reshape(len(shifts), -1) <= self.allowed[which]).all(0)

    def outside(self, groups: Sequence[_Group]) -> Tensor:
        """The points of which some row lies outside."""
        found = torch.zeros(len(self.x), dtype=torch.bool, device=self.x.device)
        for group in groups:
            rows = self.x[group.points] + group.shifts.to(self.x.dtype)
            distances = self.distance(rows.reshape(-1, rows.shape[2])).reshape(len(group.shifts), -1)
            found[group.points] = ~(distances <= self.allowed[group.points]).all(0)
        return found

    def none(self, row: int, what: str) -> InputError:
        """The refusal of a point without room."""
        place = ", ".join(f"{float(coordinate):.4g}" for coordinate in self.x[row])
        return InputError(
            f"Row {row} of the points, ({place}), has no room inside for a stencil along {what}, not even of steps "
            f"{1 / self.least:.0f} times smaller, whose rounding would be felt: move it further inside, choose smaller "
            "steps, or use an exact engine, dudx.Taylor() or dudx.AD()."
        )


def _candidates(floor: float, least: float) -> list[tuple[int, float | None]]:
    """The stencils to try, in order: a side (0 is both) and a share of the step; None takes the distance left."""
    shares = [1.0]
    while shares[-1] / 2 >= least:
        shares.append(shares[-1] / 2)
    central: list[tuple[int, float | None]] = [(0, 1.0), (0, None), *((0, s) for s in shares[1:] if s >= floor)]
    for share in shares:
        central += [(1, share), (-1, share), *([(0, share)] if share < floor else [])]
    return central


def _groups(
    operators: tuple[Operator, ...],
    step_of: tuple[tuple[int, int], ...],
    accuracy: int,
    dimensions: int,
    rays: Sequence[_Ray],
    chosen: Mapping[_Ray, tuple[Tensor, Tensor]],
    spans: Mapping[Frame, tuple[Tensor, Tensor]],
) -> list[_Group]:
    """Points whose stencils look the same ways share a layout; their steps remain their own."""
    ways, numbers = torch.stack([chosen[ray][0] for ray in rays], dim=1).unique(dim=0, return_inverse=True)
    groups = []
    for number, looks in enumerate(ways.tolist()):
        points = (numbers == number).nonzero().flatten()
        sides = {frame: [0] * (dimensions if frame.slot is None else 1) for frame in spans}
        own = {frame: (shift[points], inverse[points]) for frame, (shift, inverse) in spans.items()}
        for ray, way in zip(rays, looks, strict=True):
            sides[ray.frame][ray.axis] = way
            factor = chosen[ray][1][points].unsqueeze(1)
            column = slice(None) if ray.frame.slot is not None else slice(ray.axis, ray.axis + 1)
            shift, inverse = (tensor.clone() for tensor in own[ray.frame])
            shift[:, column] *= factor
            inverse[:, column] /= factor
            own[ray.frame] = (shift, inverse)
        looking = tuple((frame, tuple(found)) for frame, found in sides.items())
        layout = stencil(operators, dimensions, step_of, True, accuracy, looking)
        first = next(iter(own.values()))[0]
        constants = layout.constants(first.dtype, first.device)
        ordered = {frame: own[frame] for frame in layout.frames}
        shifts, scales = placed(layout, constants, ordered, dimensions)
        shifts = shifts.expand(-1, len(points), -1)
        groups.append(_Group(points, layout, shifts, constants[0], scales))
    return groups


def _evaluated(model: Model, x: Tensor, groups: Sequence[_Group]) -> list[Tensor]:
    """One forward pass over as many rows for each point as any group has; a row too many lies at the point itself.

    So rows come in blocks of all points, in order, by which whoever looks at rows knows whose they are.
    """
    nodes = max(len(group.shifts) for group in groups)
    shifts = torch.zeros(nodes, *x.shape, dtype=x.dtype, device=x.device)
    for group in groups:
        shifts[: len(group.shifts), group.points] = group.shifts.to(x.dtype)
    u = model_checks.forward(model, (x + shifts).reshape(-1, x.shape[1])).unflatten(0, (nodes, len(x)))
    pieces = []
    for group in groups:
        values = u[: len(group.shifts), group.points].flatten(0, 1)
        pieces.append(group.layout.combined(values, len(group.points), x.dtype, group.weights, group.scales))
    back = torch.cat([group.points for group in groups]).argsort()
    return [torch.cat(parts)[back] for parts in zip(*pieces, strict=True)]
