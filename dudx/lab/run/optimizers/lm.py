"""Levenberg and Marquardt's method."""

from __future__ import annotations

from collections.abc import Iterable

from torch import nn

from dudx.optim import LevenbergMarquardt
from dudx.optim.step_solvers import Reduce


def levenberg_marquardt(
    parameters: Iterable[nn.Parameter], damping: float, memory: float, acceleration: bool, reduce: Reduce | None
) -> LevenbergMarquardt:
    """Levenberg–Marquardt: second order, for a few thousand parameters, in float64 far ahead of the rest."""
    return LevenbergMarquardt(parameters, damping, memory, acceleration, reduce=reduce)


OPTIMIZER = levenberg_marquardt
