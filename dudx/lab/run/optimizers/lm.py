"""Levenberg and Marquardt's method."""

from __future__ import annotations

from collections.abc import Iterable

from torch import nn

from dudx.optim import LevenbergMarquardt


def levenberg_marquardt(
    parameters: Iterable[nn.Parameter], damping: float, memory: float, acceleration: bool
) -> LevenbergMarquardt:
    """Levenberg–Marquardt: second order, for a few thousand parameters, in float64 far ahead of the rest."""
    return LevenbergMarquardt(parameters, damping, memory, acceleration)


OPTIMIZER = levenberg_marquardt
