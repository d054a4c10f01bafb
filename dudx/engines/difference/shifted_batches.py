"""A request of operators as shifted batches: planned once, evaluated in a single forward pass and one product."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from dudx.backend.active_modes import lasting_constants
from dudx.engines.difference.stencils import tensor_product
from dudx.engines.interface import Prepared, in_common_format
from dudx.engines.request import Request
from dudx.network import model_checks
from dudx.network.model_checks import Model
from dudx.operators import Directional, Operator

#: A step: one number, a number for each axis, or a (B, 1) tensor with a number for each point.
Step = float | tuple[float, ...] | Tensor

HALF = (torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class Frame:
    """The unit of integer offsets: the number of a step, and the slot of the vectors they follow (None: the axes)."""

    step: int
    slot: int | None = None


@dataclass(frozen=True)
class _Sum:
    """A weighted sum over all nodes, part of an operator, still to be divided by the step along each of `axes`."""

    operator: int
    frame: Frame | None
    axes: tuple[int, ...]
    weights: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class Stencil:
    """Which shifted batches are evaluated, and how they are combined into operators."""

    operators: int
    center: bool
    frames: dict[Frame, tuple[tuple[int, ...], ...]]
    sums: tuple[_Sum, ...]

    @property
    def nodes(self) -> int:
        """How many rows pass through the network for each point."""
        return self.center + sum(map(len, self.frames.values()))

    @lru_cache(maxsize=8)  # noqa: B019  (stencils are cached for good themselves)
    def constants(self, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, ...]:
        """The weights (sums, nodes), then the offsets of each frame, as data: in a compiled graph they are clutter."""
        with lasting_constants():
            weights = torch.tensor([one.weights for one in self.sums], dtype=dtype, device=device)
            offsets = [torch.tensor(list(o), dtype=dtype, device=device) for o in self.frames.values()]
        return weights.view(len(self.sums), self.nodes), *offsets

    def evaluated(self, model: Model, x: Tensor, shifts: Tensor, weights: Tensor, scales: Tensor) -> list[Tensor]:
        """One forward pass, one product; `scales` (sums, 1) or (sums, B) are the powers of the inverse steps."""
        shifted = x + (shifts if shifts.dtype == x.dtype else shifts.to(x.dtype))
        u = model_checks.forward(
            model, shifted.reshape(-1, x.shape[1])
        )  # shifted points keep the strides of the points
        return self.combined(u, len(x), x.dtype, weights, scales)

    def combined(self, u: Tensor, points: int, dtype: torch.dtype, weights: Tensor, scales: Tensor) -> list[Tensor]:
        """The operators, of the outputs at all nodes of points of this format, (nodes * points, m)."""
        # Differences of half-precision outputs are exact in single precision; their sums in half precision are not.
        wide = u.float() if u.dtype in HALF else u
        # Their own format is what autocast must leave alone.
        with torch.autocast(u.device.type, enabled=False) if wide.dtype != u.dtype else contextlib.nullcontext():
            table = torch.mm(
                weights if weights.dtype == wide.dtype else weights.to(wide.dtype), wide.reshape(self.nodes, -1)
            )
        table = table.view(len(self.sums), points, -1) * scales.unsqueeze(2)
        results: list[Tensor | None] = [None] * self.operators
        for one, values in zip(self.sums, table.unbind(), strict=True):
            already = results[one.operator]
            results[one.operator] = values if already is None else already + values
        found = [u.new_zeros(points, u.shape[1]) if r is None else r for r in results]
        return found if wide.dtype == dtype else in_common_format(found, dtype, u.dtype)


@lru_cache(maxsize=256)
def stencil(
    operators: tuple[Operator, ...],
    dimensions: int,
    step_of: tuple[tuple[int, int], ...],
    per_axis: bool,
    accuracy: int,
    sides: int | tuple[tuple[Frame, tuple[int, ...]], ...] = 0,
) -> Stencil:
    """Merge the stencils of all terms; nodes of one frame that coincide are evaluated once.

    `sides` says which way they look, 0 for both, +1 or -1: one for all, or one for each axis of each frame.
    """
    number = dict(step_of)
    looking = None if isinstance(sides, int) else dict(sides)
    # By operator, frame and axes: the weights by node, a frame and an offset.
    groups: dict[tuple[int, Frame | None, Any], dict[tuple[Frame | None, tuple[int, ...]], float]] = {}
    for place, operator in enumerate(operators):
        for term, coefficient in operator.terms.items():
            if isinstance(term, Directional):
                frame, axes = Frame(number[term.order], term.slot), (0,) * term.order
                nodes = tensor_product((term.order,), accuracy, looking[frame] if looking else (sides,))
            else:
                frame, axes = (Frame(number[term.order]), term.axes) if term.axes else (None, ())
                orders = tuple(term.axes.count(a) for a in range(dimensions))
                ways = looking[frame] if looking and frame else None if looking else (sides,) * dimensions
                nodes = tensor_product(orders, accuracy, ways)
                # Where all axes share one step, all terms of one order share one power of it.
                axes = axes if per_axis else (0,) * len(axes)
            weights = groups.setdefault((place, frame, axes), {})
            for offset, weight in nodes.items():
                node = (frame, offset) if any(offset) else (None, ())
                weights[node] = weights.get(node, 0.0) + coefficient * float(weight)

    used = {node for weights in groups.values() for node in weights}
    frames: dict[Frame, tuple[tuple[int, ...], ...]] = {}
    for frame, offset in sorted(used, key=repr):
        if frame is not None:
            frames[frame] = (*frames.get(frame, ()), offset)
    center = (None, ()) in used or not used
    order = [(None, ())] * center + [(frame, offset) for frame, offsets in frames.items() for offset in offsets]
    sums = tuple(
        _Sum(place, frame, axes, tuple(weights.get(node, 0.0) for node in order))
        for (place, frame, axes), weights in groups.items()
    )
    return Stencil(len(operators), center, frames, sums)


def prepare(x: Tensor, request: Request, steps: Mapping[int, Step], accuracy: int, side: int = 0) -> Prepared:
    """Plan the operators; `steps` gives the step of each derivative order, `side` the way stencils look."""
    if not request.vectors and not any(isinstance(step, Tensor) for step in steps.values()):
        return _fixed(request.operators, tuple(steps.items()), accuracy, side, x.shape[1], x.dtype, x.device)
    layout, widths = _planned(request.operators, steps, accuracy, side, x.shape[1], x.dtype, x.device)
    tensors = (*layout.constants(wider(x.dtype), x.device), *widths, *request.vectors)
    return Prepared((layout, len(widths)), _Moving(layout, len(widths)), tensors, layout.nodes)


@lru_cache(maxsize=256)
def _fixed(
    operators: tuple[Operator, ...],
    steps: tuple[tuple[int, float | tuple[float, ...]], ...],
    accuracy: int,
    side: int,
    dimensions: int,
    dtype: torch.dtype,
    device: torch.device,
) -> Prepared:
    """Plan steps that are the same at all points: shifts and scales are known beforehand."""
    with lasting_constants():
        layout, widths = _planned(operators, dict(steps), accuracy, side, dimensions, dtype, device)
        constants = layout.constants(wider(dtype), device)
        spans = {frame: span(frame, widths, []) for frame in layout.frames}
        shifts, scales = placed(layout, constants, spans, dimensions)
    return Prepared((layout, "fixed"), _Fixed(layout), (shifts, constants[0], scales), layout.nodes)


@dataclass(frozen=True)
class _Fixed:
    """Evaluation with the same shifts and scales at all points."""

    layout: Stencil

    def __call__(self, model: Model, x: Tensor, tensors: Sequence[Tensor]) -> list[Tensor]:
        return self.layout.evaluated(model, x, *tensors)


@dataclass(frozen=True)
class _Moving:
    """Evaluation with steps or vectors that differ from point to point, so that shifts and scales are computed too."""

    layout: Stencil
    widths: int

    def __call__(self, model: Model, x: Tensor, tensors: Sequence[Tensor]) -> list[Tensor]:
        first = 1 + len(self.layout.frames)
        widths, vectors = tensors[first : first + self.widths], tensors[first + self.widths :]
        spans = {frame: span(frame, widths, vectors) for frame in self.layout.frames}
        shifts, scales = placed(self.layout, tensors[:first], spans, x.shape[1])
        return self.layout.evaluated(model, x, shifts, tensors[0], scales)


def wider(dtype: torch.dtype) -> torch.dtype:
    """The format of steps: half precision is too coarse for a step and its inverse, which are rounded later."""
    return torch.float32 if dtype in HALF else dtype


def _planned(
    operators: tuple[Operator, ...],
    steps: Mapping[int, Step],
    accuracy: int,
    side: int,
    dimensions: int,
    dtype: torch.dtype,
    device: torch.device,
) -> tuple[Stencil, list[Tensor]]:
    """The stencil of a request and its different steps."""
    distinct, step_of = distinct_steps(steps)
    per_axis = any(isinstance(step, tuple) for step in distinct)
    layout = stencil(operators, dimensions, step_of, per_axis, accuracy, side)
    return layout, [_as_tensor(step, wider(dtype), device) for step in distinct]


def _as_tensor(step: Step, dtype: torch.dtype, device: torch.device) -> Tensor:
    return step.to(device, dtype) if isinstance(step, Tensor) else _constant(step, dtype, device)


@lru_cache(maxsize=256)
def _constant(step: float | tuple[float, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """A step as a tensor, made once: a copy to a GPU waits for it."""
    with lasting_constants():
        return torch.as_tensor(step, dtype=dtype, device=device)


def placed(
    layout: Stencil, constants: Sequence[Tensor], spans: Mapping[Frame, tuple[Tensor, Tensor]], dimensions: int
) -> tuple[Tensor, Tensor]:
    """Shifts and scales where the displacement of offset 1 and the inverse step are known for each frame."""
    weights, *offsets = constants
    shifts = [offset.unsqueeze(1) * shift for offset, (shift, _) in zip(offsets, spans.values(), strict=True)]
    scales = [_power(spans[one.frame][1], one.axes) if one.frame else weights.new_ones(1) for one in layout.sums]
    if layout.center:
        shifts.insert(0, weights.new_zeros(1, 1, dimensions))
    points = max(shift.shape[1] for shift in shifts)
    return (
        torch.cat([shift.expand(-1, points, dimensions) for shift in shifts]),
        torch.stack([scale.expand(points) for scale in scales]) if scales else weights.new_ones(0, 1),
    )


def _power(inverse: Tensor, axes: Sequence[int]) -> Tensor:
    """The product of the inverse steps along each axis; they may differ from axis to axis, from point to point."""
    total = inverse.new_ones(1)
    for axis in axes:
        if inverse.ndim == 2 and inverse.shape[1] > 1:
            total = total * inverse[:, axis]
        else:
            total = total * (inverse.flatten() if inverse.ndim != 1 else inverse[axis])
    return total


def distinct_steps(steps: Mapping[int, Step]) -> tuple[list[Step], tuple[tuple[int, int], ...]]:
    """The different steps, and the number of the one each order uses: orders that share a step share nodes."""
    distinct: list[Step] = []
    numbers: dict[int, int] = {}
    for order, step in steps.items():
        same = [
            i
            for i, other in enumerate(distinct)
            if other is step or (not (isinstance(step, Tensor) or isinstance(other, Tensor)) and other == step)
        ]
        if not same:
            same = [len(distinct)]
            distinct.append(step)
        numbers[order] = same[0]
    return distinct, tuple(sorted(numbers.items()))


def span(frame: Frame, widths: Sequence[Tensor], vectors: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """The displacement of offset 1 in a frame, and the inverse step by which differences are multiplied."""
    width = widths[frame.step]
    if frame.slot is None:
        return width, 1 / width
    # One step away along v, measured in steps of the axes; a zero vector has derivative zero, not 0/0.
    v = vectors[frame.slot].to(width.dtype)  # in half precision the inverse step to a power would overflow
    length = torch.linalg.vector_norm(v / width, dim=1, keepdim=True)
    return v / torch.where(length > 0, length, torch.ones_like(length)), length
