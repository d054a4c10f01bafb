"""A request of operators as shifted batches: planned once, evaluated in a single forward pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from dudx import checks
from dudx.checks import Model
from dudx.engines.base import Prepared
from dudx.engines.difference.stencils import tensor_product
from dudx.operators import Directional, Operator

#: A step: one number, a number for each axis, or a (B, 1) tensor with a number for each point.
Step = float | tuple[float, ...] | Tensor

HALF = (torch.float16, torch.bfloat16)

#: A term without its tensors: the axes of a partial derivative, or the number of a direction and the order.
_Partial = tuple[int, ...]
_Along = tuple[str, int, int]
_Request = tuple[tuple[tuple[_Partial | _Along, float], ...], ...]


@dataclass(frozen=True)
class _Frame:
    """What integer offsets count: the step number, and the direction they follow (None: the axes)."""

    step: int
    direction: int | None = None


@dataclass(frozen=True)
class _Row:
    """A weighted sum over all nodes, still to be divided by the step along each of `axes`."""

    frame: _Frame | None
    axes: tuple[int, ...]
    weights: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class Plan:
    """Which shifted batches are evaluated, and how they are combined into operators."""

    center: bool
    frames: dict[_Frame, tuple[tuple[int, ...], ...]]
    rows: tuple[tuple[_Row, ...], ...]

    @property
    def nodes(self) -> int:
        """How many rows pass through the network for each point."""
        return self.center + sum(map(len, self.frames.values()))

    @lru_cache(maxsize=8)  # noqa: B019  (plans are cached for good themselves)
    def constants(self, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, ...]:
        """The offsets of each frame and the weights of each row, as data: in a compiled graph they would be clutter."""
        weights = [row.weights for rows in self.rows for row in rows]
        with torch.inference_mode(False):
            return tuple(torch.tensor(list(c), dtype=dtype, device=device) for c in (*self.frames.values(), *weights))


@lru_cache(maxsize=256)
def plan(
    request: _Request, dimensions: int, step_of: tuple[tuple[int, int], ...], per_axis: bool, accuracy: int
) -> Plan:
    """Merge the stencils of all terms; nodes of one frame that coincide are evaluated once."""
    number = dict(step_of)
    sums: list[dict[tuple[_Frame | None, tuple[int, ...]], dict[tuple[_Frame | None, tuple[int, ...]], float]]] = []
    for operator in request:
        groups: dict = {}
        for term, coefficient in operator:
            if term and isinstance(term[0], str):
                _, direction, order = term
                frame, axes = _Frame(number[order], direction), (0,) * order
                stencil = tensor_product((order,), accuracy)
            else:
                frame, axes = (_Frame(number[len(term)]), term) if term else (None, ())
                stencil = tensor_product(tuple(term.count(a) for a in range(dimensions)), accuracy)
                # Where all axes share one step, all terms of one order share one power of it.
                axes = axes if per_axis else (0,) * len(axes)
            weights = groups.setdefault((frame, axes), {})
            for offset, weight in stencil.items():
                node = (frame, offset) if any(offset) else (None, ())
                weights[node] = weights.get(node, 0.0) + coefficient * float(weight)
        sums.append(groups)

    used = {node for groups in sums for weights in groups.values() for node in weights}
    frames: dict[_Frame, tuple[tuple[int, ...], ...]] = {}
    for frame, offset in sorted(used, key=repr):
        if frame is not None:
            frames[frame] = (*frames.get(frame, ()), offset)
    center = (None, ()) in used
    order = [(None, ())] * center + [(frame, offset) for frame, offsets in frames.items() for offset in offsets]
    rows = tuple(
        tuple(
            _Row(frame, axes, tuple(weights.get(node, 0.0) for node in order))
            for (frame, axes), weights in groups.items()
        )
        for groups in sums
    )
    return Plan(center, frames, rows)


def prepare(x: Tensor, operators: Sequence[Operator], steps: Mapping[int, Step], accuracy: int) -> Prepared:
    """Plan the operators; `steps` gives the step of each derivative order."""
    directions: list[Tensor] = []
    request = tuple(tuple(_without_tensors(o, directions).items()) for o in operators)
    distinct, numbers = _distinct(steps)
    per_axis = any(isinstance(step, tuple) for step in distinct)
    layout = plan(request, x.shape[1], tuple(sorted(numbers.items())), per_axis, accuracy)
    # Half precision is too coarse for a step and its inverse; they are rounded once they meet the points.
    precise = torch.float32 if x.dtype in HALF else x.dtype
    widths = [torch.as_tensor(step, dtype=precise, device=x.device) for step in distinct]
    evaluation = _Evaluation(layout, len(widths))
    tensors = (*layout.constants(precise, x.device), *widths, *directions)
    return Prepared((layout, len(widths)), evaluation, tensors, rows=layout.nodes)


def differences(
    model: Model, x: Tensor, operators: Sequence[Operator], steps: Mapping[int, Step], accuracy: int
) -> list[Tensor]:
    """Every operator at the points by central differences; `steps` gives the step of each derivative order."""
    return prepare(x, operators, steps, accuracy)(model, x)


@dataclass(frozen=True)
class _Evaluation:
    """A plan carried out: one forward pass, one weighted sum for each row."""

    layout: Plan
    widths: int

    def __call__(self, model: Model, x: Tensor, tensors: Sequence[Tensor]) -> list[Tensor]:
        given = iter(tensors)
        offsets = {frame: next(given) for frame in self.layout.frames}
        weights = [[next(given) for _ in rows] for rows in self.layout.rows]
        widths = [next(given) for _ in range(self.widths)]
        directions = list(given)
        spans = {frame: _span(frame, widths, directions) for frame in self.layout.frames}
        batches = [x.unsqueeze(0)] if self.layout.center else []
        for frame, (shift, _) in spans.items():
            batches.append(x + (offsets[frame].unsqueeze(1) * shift).to(x.dtype))
        shifted = torch.cat(batches)
        u = checks.forward(model, shifted.reshape(-1, x.shape[1]))
        # Differences of half-precision outputs are exact in single precision; their sums in half precision are not.
        wide = u.float() if u.dtype in HALF else u
        flat = wide.reshape(len(shifted), -1)
        pairs = zip(self.layout.rows, weights, strict=True)
        return [self._combined(rows, of_rows, flat, spans).view(len(x), -1).to(u.dtype) for rows, of_rows in pairs]

    def _combined(
        self,
        rows: Sequence[_Row],
        weights: Sequence[Tensor],
        flat: Tensor,
        spans: Mapping[_Frame, tuple[Tensor, Tensor]],
    ) -> Tensor:
        total: Tensor | None = None
        for row, of_row in zip(rows, weights, strict=True):
            part = of_row.to(flat.dtype) @ flat
            if row.frame is not None:
                part = _scaled(part, spans[row.frame][1], row.axes)
            total = part if total is None else total + part
        return torch.zeros_like(flat[0]) if total is None else total


def _scaled(part: Tensor, inverse: Tensor, axes: Sequence[int]) -> Tensor:
    """The weighted sum times the inverse step along each axis; steps may differ from axis to axis or point to point."""
    if inverse.ndim == 2:
        return (part.view(len(inverse), -1) * inverse ** len(axes)).flatten()
    for axis in axes:
        part = part * (inverse if inverse.ndim == 0 else inverse[axis])
    return part


def _without_tensors(operator: Operator, directions: list[Tensor]) -> dict[_Partial | _Along, float]:
    bare: dict[_Partial | _Along, float] = {}
    for term, coefficient in operator.terms.items():
        if isinstance(term, Directional):
            known = [i for i, direction in enumerate(directions) if direction is term.direction]
            if not known:
                known = [len(directions)]
                directions.append(term.direction)
            bare["along", known[0], term.order] = coefficient
        else:
            bare[term.axes] = coefficient
    return bare


def _distinct(steps: Mapping[int, Step]) -> tuple[list[Step], dict[int, int]]:
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
    return distinct, numbers


def _span(frame: _Frame, widths: Sequence[Tensor], directions: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """The displacement of offset 1 in a frame, and the inverse step by which differences are multiplied."""
    width = widths[frame.step]
    if frame.direction is None:
        return width, 1 / width
    # One step away along v, measured in steps of the axes; a zero vector has derivative zero, not 0/0.
    v = directions[frame.direction].to(width.dtype)  # in half precision the inverse step to a power would overflow
    length = torch.linalg.vector_norm(v / width, dim=1, keepdim=True)
    return v / torch.where(length > 0, length, torch.ones_like(length)), length
