"""The search for a step: the error of finite differences as a function of the step, and where it is least."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from dudx import errors
from dudx.backend import tensor_checks
from dudx.engines.autodiff import AD
from dudx.engines.difference.domain_stencils import distance_of
from dudx.engines.difference.shifted_batches import HALF, prepare
from dudx.engines.difference.stencils import reach
from dudx.engines.first_use import sound_derivatives
from dudx.engines.interface import Engine, Side
from dudx.engines.request import request_of
from dudx.errors import CalibrationError, CalibrationWarning, InputError
from dudx.network import model_checks
from dudx.network.batch_bound import Pointwise, samples_of
from dudx.network.model_checks import Model
from dudx.network.restored_state import unchanged_state
from dudx.network.sandbox import without_graph
from dudx.operators import D

HIGHEST_ORDER = 4
# Where the optimum of ε_m^(1/(order + accuracy)) times a constant of a few lies, for orders up to 2 at accuracy 2 and
# for anything higher.
_RANGES = {
    torch.float64: ((1e-8, 1e-1), (1e-5, 1.0)),
    torch.float32: ((1e-6, 1e-1), (1e-4, 1.0)),
    torch.float16: ((1e-3, 2.0), (1e-1, 4.0)),
    torch.bfloat16: ((1e-2, 4.0), (3e-2, 8.0)),
}
#: Numbers of the sides on which a stencil takes its values.
SIDES: dict[Side, int] = {"central": 0, "forward": 1, "backward": -1}
#: What differences are compared with.
Reference = Literal["exact", "float64", "differences"]
#: The share of the points, those furthest from the boundary, at which the steps of stencils that stay inside are found.
_DEEPEST = 0.25


@dataclass(frozen=True)
class Calibration:
    """The error curve of finite differences and the step at its minimum.

    Example:
        >>> curve = dudx.find_eps(torch.sin, torch.rand(100, 1, dtype=torch.float64), order=2)
        >>> isinstance(curve, dudx.engines.difference.calibration.Calibration), len(curve.steps) == len(curve.rmse)
        (True, True)
    """

    order: int
    step: float
    steps: np.ndarray
    rmse: np.ndarray
    max_error: np.ndarray
    reference: str

    @property
    def at_edge(self) -> bool:
        """True where the minimum sits at an end of the range, so that a better step may lie outside."""
        return self.step in (float(self.steps[0]), float(self.steps[-1]))


def find_eps(
    model: Model,
    x: Tensor,
    order: int,
    *,
    candidates: int = 50,
    smallest: float | None = None,
    largest: float | None = None,
    axes: Sequence[int] | None = None,
    accuracy: int = 2,
    reference: Reference | Engine = "exact",
    max_rows: int = 2**15,
    side: Side = "central",
) -> Calibration:
    """Find the step at which differences of the given order come closest to the true derivative.

    Args:
        model: the network.
        x: the points at which errors are measured, (B, d); a thousand are plenty.
        order: the derivative order, 1 to 4; errors are pooled over the pure derivatives along `axes`.
        candidates: how many steps are tried, spaced evenly in the logarithm.
        smallest: the lower end of the range; by default it follows the floating-point format.
        largest: the upper end of the range; likewise.
        axes: the input columns to differentiate along; all of them by default.
        accuracy: the order of convergence of the stencil, even where it is central.
        reference: what counts as true. "exact" is automatic differentiation (of a single-precision copy for
            half-precision networks), an engine is asked instead if one is given. Two need no automatic
            differentiation: "float64" takes differences of a double-precision copy, "differences" estimates the error
            from how much neighbouring steps disagree.
        max_rows: how many rows pass through the network at once, which bounds the memory; an isolated network takes
            all of its samples at once, however many these are.
        side: "central", or "forward" or "backward" for stencils that look one way only.

    Example:
        >>> x = torch.rand(100, 1, dtype=torch.float64)
        >>> curve = dudx.find_eps(torch.sin, x, order=1)
        >>> 1e-7 < curve.step < 1e-3
        True
    """
    x = tensor_checks.points(x).detach()
    model = model_checks.model(model, x)
    if x.is_meta:
        raise InputError("The meta device holds no values, so no step can be calibrated; use real points.")
    if not errors.is_whole(order) or order > HIGHEST_ORDER:
        raise InputError(f"A step can be calibrated for derivative orders 1 to {HIGHEST_ORDER}; got {order!r}.")
    if not errors.is_whole(candidates, 3):
        raise InputError(f"The search needs at least 3 candidates; got {candidates!r}.")
    errors.one_of(side, Side, "side")
    errors.difference_accuracy(accuracy, side)
    steps = _candidates(x.dtype, order > 2 or accuracy > 2, candidates, smallest, largest)
    search = _Search(model, x, order, _axes(axes, x), accuracy, steps, max_rows, SIDES[side])
    with without_graph(model, next(search.slices())) as kernels, unchanged_state(model):
        if kernels.drawn and not isinstance(model, Pointwise):
            raise CalibrationError(
                "This network draws random numbers, as dropout does in training mode, so its differences at two steps "
                "cannot be compared; find the step in evaluation mode, after model.eval(), or use dudx.AD()."
            )
        coarser = kernels.coarser_than(x.dtype)
        if coarser is not None:
            search.steps = _candidates(coarser, order > 2 or accuracy > 2, candidates, smallest, largest)
        if reference == "differences":
            rmse, max_error = search.disagreement()
        else:
            rmse, max_error = search.errors(_truth(reference, search))
    return _least(search, rmse, max_error, reference if isinstance(reference, str) else repr(reference))


def deep_inside(
    model: Model, x: Tensor, order: int, inside: Any, search: Mapping[str, Any]
) -> tuple[Tensor, dict[str, Any]]:
    """The points furthest from a boundary, and the search with no step so large that a stencil would cross it."""
    depth = -distance_of(inside)(x)
    all_of_them = samples_of(model) > 1  # such a model takes no part of its samples
    deepest = depth.topk(len(x) if all_of_them else max(1, round(_DEEPEST * len(x))))
    chosen = deepest.indices.sort().values
    accuracy, wide = search["accuracy"], 2.0 if search["reference"] == "differences" else 1.0  # it looks at twice that
    room = 0.99 * float(deepest.values[-1]) / (wide * reach(order, accuracy))
    low, top = _RANGES.get(x.dtype, _RANGES[torch.float32])[order > 2 or accuracy > 2]
    low, top = search.get("smallest") or low, search.get("largest") or top
    if room <= low:
        raise CalibrationError(
            f"The points furthest inside have room for steps up to {max(room, 0.0):.1e}, and the search begins at "
            f"{low:.1e}: calibrate with points further from the boundary, or give the steps."
        )
    return x[chosen], {**search, "largest": min(top, room)}


def _axes(axes: object, x: Tensor) -> list[int]:
    if axes is None:
        return list(range(x.shape[1]))
    if not isinstance(axes, Iterable) or not (listed := list(axes)):
        raise InputError(f"The axes to differentiate along must be a list such as [0, 1]; got {axes!r}.")
    return listed


def _candidates(
    dtype: torch.dtype, high: bool, count: int, smallest: float | None, largest: float | None
) -> np.ndarray:
    low, top = _RANGES.get(dtype, _RANGES[torch.float32])[high]
    low = low if smallest is None else errors.positive_step(smallest, "smallest step")
    top = top if largest is None else errors.positive_step(largest, "largest step")
    if low >= top:
        raise InputError(f"The smallest step must be below the largest; got {low:g} and {top:g}.")
    return np.geomspace(low, top, count)


@dataclass
class _Search:
    """The derivatives at every candidate step, slice by slice of the points, in bounded memory."""

    model: Model
    x: Tensor
    order: int
    axes: list[int]
    accuracy: int
    steps: np.ndarray
    max_rows: int
    side: int = 0

    def __post_init__(self) -> None:
        self.request = request_of([D(*[axis] * self.order) for axis in self.axes], self.x)
        nodes = 1 + (1 if self.side else 2) * len(self.axes) * reach(self.order, self.accuracy, self.side)
        at_once = errors.whole_number(self.max_rows, "max_rows", at_least=nodes) // nodes  # a point's stencil or more
        samples = samples_of(self.model)  # such a model takes all of them, or a multiple
        self.rows_at_once = max(1, at_once // samples) * samples

    def slices(self) -> Iterator[Tensor]:
        yield from self.x.split(self.rows_at_once)

    def derivatives(self, x: Tensor, steps: np.ndarray) -> Tensor:
        """Float64 derivatives at the points x for each step, shape (steps, axes, points, outputs)."""
        tables = []
        for group in torch.from_numpy(steps).split(max(1, self.rows_at_once // len(x))):
            step = group.to(x).repeat_interleave(len(x)).unsqueeze(1)
            rows, by_order = x.repeat(len(group), 1), {self.order: step}
            values = prepare(rows, self.request, by_order, self.accuracy, self.side)(self.model, rows)
            table = torch.stack(values).detach().double()
            tables.append(table.unflatten(1, (len(group), len(x))).transpose(0, 1))
        return torch.cat(tables)

    def errors(self, truth: Callable[[Tensor], Iterable[Tensor]]) -> tuple[np.ndarray, np.ndarray]:
        """RMSE and maximum of the error at each step, where `truth` gives the derivatives at some points."""
        squares, maxima, count = [], [], 0
        for x in self.slices():
            true = torch.stack([value.detach().double() for value in truth(x)])
            if not bool(torch.isfinite(true).all()):
                raise CalibrationError(
                    "The reference derivative is not finite at some points: look for a NaN among the network's weights "
                    "or a singularity at the points."
                )
            error = (self.derivatives(x, self.steps) - true).abs().flatten(1)
            squares.append(error.square().sum(1))
            maxima.append(error.amax(1))
            count += error.shape[1]
        return _array((torch.stack(squares).sum(0) / count).sqrt()), _array(torch.stack(maxima).amax(0))

    def disagreement(self) -> tuple[np.ndarray, np.ndarray]:
        """RMSE and maximum of the error estimated from the differences alone.

        With D(h) = f + a h^p + noise of size b h^-k, the disagreements of D(h) with D(rh) and with D(h/r) have mean
        squares that are linear in the two squared error parts at h. Solving for both gives the error at h without
        knowing f. Steps larger than the network's features agree with each other again, on derivatives that are too
        small: where these lose magnitude the estimate is raised in proportion.
        """
        r = self.steps[1] / self.steps[0]
        stride = max(1, round(math.log(2) / math.log(r)))
        wider = self.steps[0] * r ** np.arange(-stride, len(self.steps) + stride)
        above, below, levels, maxima, count = [], [], [], [], 0
        for x in self.slices():
            table = self.derivatives(x, wider).flatten(1)
            change = table[stride:] - table[:-stride]
            above.append(change[stride:].square().sum(1))
            below.append(change[:-stride].square().sum(1))
            levels.append(table[stride:-stride].square().sum(1))
            maxima.append(change[stride:].abs().amax(1))
            count += table.shape[1]
        *squares, level = (_array(torch.stack(sums).sum(0) / count) for sums in (above, below, levels))
        r, p, k = r**stride, self.accuracy, self.order
        system = np.array([[(r**p - 1) ** 2, 1 + r ** (-2 * k)], [(1 - r**-p) ** 2, 1 + r ** (2 * k)]])
        rmse = np.sqrt(np.clip(np.linalg.solve(system, np.stack(squares)), 0, None).sum(0))
        level = np.sqrt(np.maximum(level, np.finfo(float).tiny))
        best = level[(rmse / level).argmin()]
        rmse = rmse * best / np.minimum(level, best)
        spread = _array(torch.stack(maxima).amax(0)) / np.sqrt(np.maximum(squares[0], np.finfo(float).tiny))
        return rmse, rmse * spread


def _array(values: Tensor) -> np.ndarray:
    return values.cpu().numpy()


def _truth(reference: Reference | Engine, search: _Search) -> Callable[[Tensor], Iterable[Tensor]]:
    """The function that gives the true derivatives at some points."""
    if isinstance(reference, Engine):
        return _derivatives(search, search.model, reference)
    errors.one_of(reference, Reference, "reference")
    if reference == "exact" and search.x.dtype not in HALF:
        return _derivatives(search, search.model, AD())
    if reference == "exact":
        exact = _derivatives(search, _copy(search.model, torch.float32, "exact"), AD())
        return lambda x: exact(x.float())
    if search.x.dtype == torch.float64:
        raise InputError("The network is double precision already; use reference='exact' or 'differences'.")
    twin = _copy(search.model, torch.float64, "float64")
    precise = find_eps(
        twin,
        search.x.double(),
        search.order,
        axes=search.axes,
        accuracy=4,
        reference="differences",
        smallest=1e-5,
        largest=1.0,
        max_rows=search.max_rows,
    )
    # Its stencil is wider than the one searched for, so that fewer points fit into the rows allowed at once.
    wider = _Search(twin, search.x, search.order, search.axes, 4, np.array([precise.step]), search.max_rows)

    def truth(x: Tensor) -> Tensor:
        parts = x.double().split(wider.rows_at_once)
        return torch.cat([wider.derivatives(part, wider.steps)[0] for part in parts], dim=1)

    return truth


def _derivatives(search: _Search, model: Model, engine: Engine) -> Callable[[Tensor], Sequence[Tensor]]:
    """The function that computes the derivatives by an engine, with all checks."""
    return lambda x: sound_derivatives(engine, model, x, search.request)


def _copy(model: Model, dtype: torch.dtype, reference: str) -> nn.Module:
    if not isinstance(model, nn.Module):
        raise InputError(
            f"The reference {reference!r} needs a copy of the model in {dtype}, which only an nn.Module can give; "
            "use reference='differences'."
        )
    return copy.deepcopy(model).to(dtype)


def _least(search: _Search, rmse: np.ndarray, max_error: np.ndarray, reference: str) -> Calibration:
    if not np.isfinite(rmse).all():
        raise CalibrationError(
            f"The error curve is not finite at step {search.steps[~np.isfinite(rmse)][0]:.1e}: the network overflows "
            "there or returns NaN; narrow the range with smallest= and largest=."
        )
    found = Calibration(search.order, float(search.steps[rmse.argmin()]), search.steps, rmse, max_error, reference)
    if found.at_edge:
        warnings.warn(
            f"The error of order {search.order} is least at {found.step:.1e}, an end of the range searched; widen it "
            "with smallest= and largest=.",
            CalibrationWarning,
            stacklevel=3,
        )
    return found
