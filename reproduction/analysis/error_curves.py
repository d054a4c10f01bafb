"""Error of a run over training: after a number of steps or CPU seconds, and when it first fell below a level."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Progress = Literal["cpu_seconds", "epoch"]
#: Share of the training over which an error is averaged. New points move a network a little, so that its error
#: fluctuates by a factor of two between evaluations, which is not an effect of the engine.
_AVERAGED = 0.1
#: Share of a mark that a run must have reached to have an error there.
_REACHED = 0.95


@dataclass(frozen=True)
class CurvePoint:
    """Relative L2 error of a network during training, with the CPU seconds and steps spent so far."""

    cpu_seconds: float | None
    epoch: float
    error: float


ErrorCurve = Sequence[CurvePoint]


def error_curves(rows: Sequence[Mapping[str, Any]]) -> Mapping[str, ErrorCurve]:
    """Return the error curve of each run by name; runs without recorded evaluations are left out."""
    return {
        row["name"]: [CurvePoint(None if math.isnan(s) else s, epoch, error) for s, epoch, error in row["curve"]]
        for row in rows
        if row["curve"] is not None
    }


def error_at(curve: ErrorCurve, progress: Progress, mark: float) -> float | None:
    """Return the geometric mean of the errors in the last tenth before a mark; None if the run did not reach it."""
    passed = [(at, each.error) for each in curve if (at := getattr(each, progress)) is not None]
    if not passed or passed[-1][0] < _REACHED * mark:
        return None
    before = [(at, error) for at, error in passed if at <= mark]
    recent = [error for at, error in before if at > (1 - _AVERAGED) * mark] or [error for _, error in before[-1:]]
    if not recent or not all(error > 0 for error in recent):
        return None
    return math.exp(sum(math.log(error) for error in recent) / len(recent))


def reached(curve: ErrorCurve, progress: Progress, error: float) -> float | None:
    """Return when the error was first this small; None if it never was."""
    return next((at for each in curve if each.error <= error and (at := getattr(each, progress)) is not None), None)


def end(curve: ErrorCurve, progress: Progress) -> float:
    """Return the CPU seconds or steps of a run's last evaluation."""
    return max((at for each in curve if (at := getattr(each, progress)) is not None), default=0.0)


def common_end(curves: Sequence[ErrorCurve], progress: Progress) -> float:
    """Return the mark, a round number, that all of these runs reached; 0 if they cannot be compared."""
    least = min((end(curve, progress) for curve in curves), default=0.0)
    unit = 20.0 if least >= 40 else 1.0
    # A budget of 60 seconds may end a little before.
    return math.floor(least / unit + (1 - _REACHED) * (progress == "cpu_seconds")) * unit
