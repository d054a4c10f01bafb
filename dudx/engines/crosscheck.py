"""Whether derivatives are how the output moves when the points do: the judge where there is reason to doubt it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from dudx.engines.interface import Engine
from dudx.engines.request import Request, request_of
from dudx.errors import ModelError, UnsupportedError, first_line
from dudx.network.batch_bound import BatchBound, Pointwise, samples_of
from dudx.network.coupling_check import coupled
from dudx.network.double_precision import in_double
from dudx.network.model_checks import Model
from dudx.network.probe_rows import GOLDEN_RATIO, in_general_position, probe_batch, representative_points
from dudx.network.random_numbers import KernelMonitor
from dudx.network.sandbox import output_of, sandboxed
from dudx.operators import Along, D

#: Rows of a trial, at least and at most; how many of them move where it is one at a time, and the highest orders that
#: are checked in each case.
_ROWS, _MOST, _MOVING, _HIGHEST, _HIGHEST_ALONE = 6, 128, 3, 4, 2
#: How far from a point its two rows lie, in steps of the difference, so that none reaches the point.
_BESIDE = 4
#: How far rows move towards their centre where the network refuses points further outside.
_INWARDS = 0.05
#: How far two differences may disagree and still count, relative to the derivative.
_SURE = 0.005


class Trial:
    """An engine and a network at a few of the points and a little to both sides of them.

    Two differences, at a step and at half of it, must agree with each other in a row before they count, and at least
    two rows must contradict the engine by more than the differences are uncertain by: kinks, noise and steep slopes do
    not. Network and points are in double precision where the network can be copied to it.

    Args:
        model: the network.
        x: the points, (B, d).
        engine: what differentiates it.
        axes: the axes along which the points move.
        everywhere: take all points, where they are.
    """

    def __init__(self, model: Model, x: Tensor, engine: Engine, axes: Sequence[int], everywhere: bool = False):
        self.engine = engine
        alone = _one_at_a_time(engine, model, x)
        points = x.detach()
        rows = points if everywhere else some_of(model, points, _ROWS if alone else _MOST)
        double = in_double(model, rows)
        self.model, self.rows = (model, rows) if double is None else (double, rows.double())
        x = self.rows
        with KernelMonitor() as kernels:
            output_of(self.model, self.rows)
        self.eps = torch.finfo(kernels.coarser_than(x.dtype) or x.dtype).eps
        self.step = self.eps**0.25 * float(1 + self.rows.abs().amax())
        # Something of every axis, and of no two axes as much.
        weights = [1 + (axis + 1) * GOLDEN_RATIO % 1 if axis in axes else 0.0 for axis in range(x.shape[1])]
        along = torch.tensor(weights, dtype=torch.float64, device=x.device)
        along = (along / along.norm()).to(x.dtype)
        if not alone and not everywhere and not isinstance(model, BatchBound):
            self.rows = torch.cat([self.rows, self._near(points, along)])
        self.along = along.expand_as(self.rows).contiguous()
        self.highest = _HIGHEST_ALONE if alone else _HIGHEST
        self.moving: list[Any] = [slice(i, i + 1) for i in range(_MOVING)] if alone else [slice(None)]

    def _near(self, points: Tensor, along: Tensor) -> Tensor:
        """Rows to both sides of points, which may themselves be special ones; none if the network is undefined there.

        A derivative may be wrong in a part of the domain that the other rows, all moved by much, lie outside of.
        """
        own = points[representative_points(points, _MOST)].to(self.rows.dtype)
        near = torch.cat([own + share * self.step * along for share in (_BESIDE, -_BESIDE)])
        try:
            fine = bool(output_of(self.model, near).isfinite().all())
        except Exception:
            return near[:0]
        return near if fine else near[:0]

    def still_moves(self, columns: Tensor) -> bool:
        """Whether some of these outputs (m,), whose derivatives are zero at all points, move when the points do.

        The rows are elsewhere than the points, so that none is special, as one at the time zero or at a kink may be:
        what is lost to an engine is zero there too.
        """
        slope = self._at_moving(self.derivatives(self.rows, 1)[1])
        columns = columns & (slope == 0).all(0)
        if not bool(columns.any()):
            return False
        sides = [self._moved(share, lambda rows: [output_of(self.model, rows)])[0] for share in (1, -1, 0.5, -0.5)]
        return bool((self._contradicts(slope, sides) & columns).any())

    def contradicted(self, order: int) -> int | None:
        """The lowest order, up to the one given, at which derivatives are not what the order below does."""
        order = min(order, self.highest)
        here = self.derivatives(self.rows, order)
        sides = [self._moved(share, lambda rows: self.derivatives(rows, order)) for share in (1, -1, 0.5, -0.5)]
        for k in range(1, order + 1):
            if bool(self._contradicts(self._at_moving(here[k]), [side[k - 1] for side in sides]).any()):
                return k
        return None

    def derivatives(self, rows: Tensor, order: int) -> list[Tensor]:
        """The output and its derivatives along the direction, with the same random numbers each time."""
        operators = [D(), *(Along(self.along, k) for k in range(1, order + 1))]
        return values_of(self.engine, self.model, rows, request_of(operators, rows))

    def _moved(self, share: float, compute: Any) -> list[Tensor]:
        """Return the output at the rows that moved; each moves alone where the engine requires it."""
        pieces = []
        for which in self.moving:
            rows = self.rows.clone()
            rows[which] += share * self.step * self.along[which]
            pieces.append([values[which] for values in compute(rows)])
        return [torch.cat(values) for values in zip(*pieces, strict=True)]

    def _at_moving(self, values: Tensor) -> Tensor:
        return torch.cat([values.detach()[which] for which in self.moving])

    def _contradicts(self, ours: Tensor, below: list[Tensor]) -> Tensor:
        """For each output (m,), whether at least two rows contradict a derivative."""
        ours, *below = (value.double() for value in (ours, *below))
        wide, narrow = (below[0] - below[1]) / (2 * self.step), (below[2] - below[3]) / self.step
        true = narrow + (narrow - wide) / 3  # Richardson's extrapolation, whose error is of fourth order in the step
        apart, size = (wide - narrow).abs(), torch.maximum(ours.abs(), true.abs())
        rounding = 64 * self.eps * below[2].abs().amax(0) / self.step
        sure = (apart <= _SURE * size) & (size > rounding)
        wrong = sure & ((ours - true).abs() > self.eps**0.25 * size + 2 * apart + rounding)
        return wrong.sum(0) >= 2


def values_of(engine: Engine, model: Model, rows: Tensor, request: Request) -> list[Tensor]:
    """Derivatives without a graph and without a trace, also of a network that differentiates in its own forward."""
    try:
        with torch.no_grad(), sandboxed(model):
            return list(engine.derivatives(model, rows, request))
    except ModelError as failed:
        if failed.__cause__ is None:
            raise
    with torch.inference_mode(False), torch.enable_grad(), sandboxed(model):  # such a network needs one for it
        return [value.detach() for value in engine.derivatives(model, rows, request)]


def _one_at_a_time(engine: Engine, model: Model, x: Tensor) -> bool:
    """True for a coupled network and an engine that is right for these: then only some rows move, one at a time."""
    if engine.coupled is not None or isinstance(model, Pointwise):
        return False
    try:
        return coupled(model, x)
    except ModelError:  # it cannot be found out, and one at a time is right for every network
        return True


def some_of(model: Model, x: Tensor, most: int = _ROWS) -> Tensor:
    """A few rows near the points, in general position where the network is defined there."""
    if (
        isinstance(model, Pointwise) or samples_of(model) > 1
    ):  # which takes a row for each of its samples, wherever that is
        return in_general_position(x)
    try:
        rows, still = probe_batch(model, x, _ROWS, most)
    except Exception:  # a network that refuses points outside of a domain: a little further inside, if it is convex
        own = x[_spread(len(x), min(most, len(x)), x.device)]
        return own + _INWARDS * (own.mean(0) - own)
    return rows if bool(still.isfinite().all()) else x[_spread(len(x), len(rows), x.device)]


def _spread(count: int, chosen: int, device: torch.device) -> Tensor:
    """The numbers of some of the points, spread over the batch."""
    return torch.linspace(0, count - 1, chosen, device=device).round().long()


def refusal(order: int, engine: Engine) -> UnsupportedError:
    """Return the error sentence for a derivative of this order that disagrees with the output's changes."""
    which = {1: "first", 2: "second", 3: "third"}.get(order, f"{order}th")
    return UnsupportedError(
        f"The {which} derivative that {type(engine).__name__} gets of this network is not how its output moves when "
        "the points do: the network leaves the graph (no_grad, detach, .data, numpy, a function that torch cannot "
        "differentiate) or has a backward pass that is not its derivative. Write it in differentiable functions of "
        "torch, or use differences: dudx.FD().calibrated(model, x, operators, reference='differences')."
    )


def unverified(engine: Engine, reason: Exception) -> UnsupportedError:
    """The refusal of derivatives that may be wrong and cannot be compared with how the output moves."""
    return UnsupportedError(
        f"The derivatives that {type(engine).__name__} gets of this network may be wrong, as it leaves the graph or "
        "has a backward pass of its own, and they cannot be compared with how its output moves when the points do: it "
        f"fails there ({first_line(reason)}). Write it in differentiable functions of torch, or use differences, "
        "dudx.FD(step, coupled='ignore')."
    )
