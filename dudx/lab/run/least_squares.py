"""The phase of least-squares optimizers such as Levenberg-Marquardt, which take residuals and not a gradient."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from dudx.engines.interface import Engine
from dudx.errors import ModelError
from dudx.lab.run.checkpoint import Stateful
from dudx.lab.run.noise import Noise
from dudx.lab.run.objective import Part
from dudx.lab.run.phases import DivergedError, Losses
from dudx.network.model_checks import Model
from dudx.optim import Jacobian, Term


class LeastSquaresPhase:
    """Steps by an optimizer of sums of squared residuals.

    Args:
        optimizer: such as `dudx.optim.LevenbergMarquardt`.
        seen: the network as each part's points see it, given all parts' points.
        engine: gives the engine as it is now, which changes with each calibration.
        automatic: whether the optimizer is to find the weights of the terms.
        noise: what finds those of measurements, where some are kept back.
        tame: whether large residuals of the equation, the first part, count by their size.
    """

    learning_rate = 1.0

    def __init__(
        self,
        optimizer: Any,
        seen: Callable[[Sequence[Tensor]], list[Model]],
        engine: Callable[[], Engine],
        automatic: bool,
        noise: Noise | None = None,
        tame: bool = False,
    ):
        self.optimizer = optimizer
        self._seen, self._engine, self._automatic = seen, engine, automatic
        self.noise, self._tame = noise, tame
        self.stateful: dict[str, Stateful] = {"optimizer": optimizer}
        if noise is not None:
            self.stateful["noise"] = noise

    @property
    def damping(self) -> float | None:
        return getattr(self.optimizer, "damping", None)

    def step(self, parts: list[Part]) -> Losses:
        """Do one step and return the loss before it, and its parts."""
        views = self._seen([part.points for part in parts])
        watched = [self._watched(part, view) for part, view in zip(parts, views, strict=True)]
        watched[0].tame = self._tame
        for part, view, term in zip(parts, views, watched, strict=True):
            if self.noise is not None and part.kept_back is not None:
                term.weight = self.noise.weight(part, view, self._engine())
        try:
            loss = float(self.optimizer.step([term for term in watched if term.counts]))
        except ModelError as error:
            if math.isfinite(sum(term.loss for term in watched)):
                raise
            raise DivergedError from error
        if not math.isfinite(loss):
            raise DivergedError
        for term in watched:
            if not term.counts:
                term.look()
        if self.noise is not None:
            self.noise.equation = self._counted(watched[0])
        losses = torch.tensor([term.loss for term in watched], dtype=torch.float64)
        return loss, {part.name: value for part, value in zip(parts, losses, strict=True)}

    def _counted(self, equation: _Watched) -> float:
        """Return the weighted mean square of the equation in the last step."""
        last = getattr(self.optimizer, "last", None)
        weights = last.weights[0] if last is not None and last.weights else ()
        return sum(weight * square for weight, square in zip(weights, equation.squares, strict=False))

    def _watched(self, part: Part, view: Model) -> _Watched:
        weight = None if self._automatic or not part.weight else part.weight
        term = Term(part.residual, view, part.points, self._engine(), weight, part.data)
        return _Watched(term, counts=part.weight > 0)


class _Watched:
    """A term that stores its mean square at the start of a step."""

    def __init__(self, term: Term, counts: bool):
        self.term, self.weight, self.counts = term, term.weight, counts
        self.loss = 0.0
        self.tame = False
        #: The mean square of each equation.
        self.squares: list[float] = []

    def generators(self) -> list[torch.Generator]:
        return self.term.generators()

    def values(self) -> list[Tensor]:
        return self.term.values()

    def linearized(self, parameters: Sequence[Tensor], dtype: torch.dtype | None) -> tuple[Tensor, Jacobian]:
        r, linear = self.term.linearized(parameters, dtype)
        self.squares = [float(part.double().square().mean()) for part in r.split(linear.samples)]
        self.loss = sum(self.squares)
        return r, linear

    def look(self) -> None:
        self.loss = sum(float(values.double().square().mean()) for values in self.values())
