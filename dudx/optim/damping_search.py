"""The search, within one step, for a damping with which the loss falls."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dudx.gradients.rewind import Rewind
from dudx.optim.step_solvers import NormalSolver, Reduce, StepSolver
from dudx.optim.terms import LeastSquares

#: The fraction of a step over which the residuals' curvature is measured, and the largest relative correction by it.
_PROBE, _LONGEST = 0.1, 0.75
#: A step is taken if the loss falls by at least this share of what was predicted.
_GAIN = 1e-4


@dataclass(frozen=True)
class Step:
    """Record of a step: the loss before and after it (equal if no step was accepted), and how it was found."""

    loss: float
    new_loss: float
    damping: float
    tries: int
    accepted: bool
    accelerated: bool
    #: The weight of each term's equations.
    weights: tuple[tuple[float, ...], ...] = ()


@dataclass
class Damping:
    """The damping relative to the matrix's mean eigenvalue: decreased after good steps, increased after bad ones.

    Nielsen's rule: divided by up to 5 after a step that agrees with the prediction, multiplied by 2, 4, 8, … while
    steps fail.
    """

    value: float
    floor: float
    adapt: bool = True
    growth: float = 2.0

    def worked(self, gain: float) -> None:
        """Update after an accepted step; `gain` is the ratio of the actual to the predicted decrease."""
        self.growth = 2.0
        if self.adapt:
            self.value = max(self.floor, self.value * max(0.2, 1 - (2 * min(gain, 1.0) - 1) ** 3))

    def failed(self) -> None:
        """Update after a rejected step."""
        if self.adapt:
            self.value *= self.growth
            self.growth *= 2

    def not_positive(self) -> None:
        """Update where rounding makes the matrix indefinite: smaller dampings fail from here on."""
        self.floor = self.value = 10 * max(self.value, self.floor)


class BatchMemory:
    """Information kept of past batches, where each step has new points.

    With the normal matrix, the quadratic models of past batches at the current parameters: recursive least squares with
    a forgetting factor. Without it, the last step: the next one is damped towards a share of it instead of zero
    (Goldshlager, Abrahamsen and Lin, 2024, call it SPRING).
    """

    def __init__(self, share: float):
        self.share = share
        #: Matrix and gradient.
        self.past: tuple[Tensor, Tensor] | None = None
        #: The last step times the share.
        self.carried: Tensor | None = None

    def forget(self) -> None:
        """Discard everything after a failed step, which the memory may have caused."""
        self.past = self.carried = None

    def change(self, delta: Tensor) -> float:
        """The change of half the sum of squares of past batches with a step."""
        return 0.0 if self.past is None else float(delta.dot(self.past[1] + 0.5 * (self.past[0] @ delta)))

    def keep(self, solver: StepSolver, delta: Tensor) -> None:
        """Keep a share of the quadratic model, which includes the past, at the new parameters; or of the step."""
        if not self.share:
            return
        if not isinstance(solver, NormalSolver):
            self.past, self.carried = None, self.share * delta
            return
        self.carried = None
        matrix = solver.matrix()
        gradient = self.share * (solver.gradient + matrix @ delta)
        kept = torch.empty_like(matrix) if self.past is None else self.past[0]
        self.past = (torch.mul(matrix, self.share, out=kept), gradient)


@dataclass
class StepSearch:
    """Search for a step that decreases the loss; `move` sets the parameters to a vector."""

    terms: Sequence[LeastSquares]
    rewind: Rewind
    residuals: Tensor
    factors: Tensor
    solver: StepSolver
    start: Tensor
    move: Callable[[Tensor], None]
    reduce: Reduce
    acceleration: bool

    def run(self, damping: Damping, memory: BatchMemory, tries: int) -> Step:
        """Move the parameters to a smaller loss, or leave them unchanged."""
        loss = self._squares(self.residuals)
        delta: Tensor | None = None
        predicted, accelerated, length = 0.0, False, 1.0
        for tried in range(1, tries + 1):
            if delta is None:
                if not self.solver.damp(max(damping.value, damping.floor) * self.solver.scale):
                    damping.not_positive()
                    continue
                delta, predicted, accelerated = self._direction(memory)
            step = length * delta
            new_loss = self._squares(self._residuals_after(step))
            fallen = loss - new_loss - 2 * memory.change(step)
            gain = fallen / max(2 * length * predicted, 1e-300)
            if math.isfinite(new_loss) and gain > _GAIN:
                damping.worked(gain)
                memory.keep(self.solver, step)
                return Step(loss, new_loss, damping.value, tried, True, accelerated)
            damping.failed()
            if damping.adapt:
                delta = None
            else:
                length *= 0.5
        self.move(self.start)
        memory.forget()
        return Step(loss, loss, damping.value, tries, False, False)

    def _direction(self, memory: BatchMemory) -> tuple[Tensor, float, bool]:
        """A step, the predicted decrease of half the sum of squares, and whether it has a second-order correction."""
        solver, r, carried = self.solver, self.residuals, memory.carried
        if carried is None:
            delta = -solver.solve(r, solver.gradient)
        else:
            target = r + solver.times(carried)
            delta = carried - solver.solve(target, solver.transposed(target))
        moved = solver.times(delta)
        squares = self.reduce(torch.stack([r.dot(moved), moved.dot(moved)]))
        predicted = -float(squares[0] + 0.5 * squares[1]) - memory.change(delta)
        if not self.acceleration:
            return delta, predicted, False
        bend = 2 / _PROBE * ((self._residuals_after(_PROBE * delta) - r) / _PROBE - moved)
        extra = -0.5 * solver.solve(bend, solver.transposed(bend))
        fits = bool(extra.isfinite().all()) and 2 * float(extra.norm()) < _LONGEST * float(delta.norm())
        return (delta + extra if fits else delta), predicted, fits

    def _residuals_after(self, delta: Tensor) -> Tensor:
        """The weighted residuals after a step, with the same random numbers as before it."""
        self.move(self.start + delta)
        self.rewind()
        return self.factors * torch.cat([value.double() for term in self.terms for value in term.values()])

    def _squares(self, r: Tensor) -> float:
        return float(self.reduce(r.dot(r)))
