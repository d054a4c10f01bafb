"""Looks at the error that runs took on their way: what it was after so many steps or seconds, and when it was small."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from reproduction.experiments.data import Data
from reproduction.experiments.trained import LOOKS

Measure = Literal["cpu_seconds", "epoch"]
#: The share of the way over which an error is averaged. New points move a network a little, so that its error wavers by
#: a factor of two from look to look, which says nothing of the engine.
_LAST = 0.1
#: How far a run must have come to have an error at a mark.
_REACHED = 0.95


@dataclass(frozen=True)
class Look:
    """What a run had behind it, and its error then."""

    cpu_seconds: float | None
    epoch: float
    error: float


#: The looks of each run by its name, in order.
Ways = Mapping[str, Sequence[Look]]


def read(data: Data) -> Ways:
    """The looks of all runs; none where they were not kept."""
    found: dict[str, list[Look]] = {}
    if (data.folder / LOOKS).exists():
        for row in data.rows(LOOKS, ("name",), ("cpu_seconds", "epoch", "l2_relative")):
            found.setdefault(row["name"], []).append(Look(row["cpu_seconds"], row["epoch"], row["l2_relative"]))
    return found


def error_at(way: Sequence[Look], measure: Measure, mark: float) -> float | None:
    """The error at a mark: the geometric mean of the looks in the last tenth before it; None if it was not reached."""
    passed = [(at, look.error) for look in way if (at := getattr(look, measure)) is not None]
    if not passed or passed[-1][0] < _REACHED * mark:
        return None
    before = [(at, error) for at, error in passed if at <= mark]
    recent = [error for at, error in before if at > (1 - _LAST) * mark] or [error for _, error in before[-1:]]
    if not recent or not all(error > 0 for error in recent):
        return None
    return math.exp(sum(math.log(error) for error in recent) / len(recent))


def reached(way: Sequence[Look], measure: Measure, error: float) -> float | None:
    """When the error was first this small; None if it never was."""
    return next((at for look in way if look.error <= error and (at := getattr(look, measure)) is not None), None)


def end(way: Sequence[Look], measure: Measure) -> float:
    """How far a run came."""
    return max((at for look in way if (at := getattr(look, measure)) is not None), default=0.0)


def common_end(ways: Sequence[Sequence[Look]], measure: Measure) -> float:
    """How far all of these runs came, in a round number; 0 where they cannot be compared."""
    least = min((end(way, measure) for way in ways), default=0.0)
    unit = 20.0 if least >= 40 else 1.0
    # A budget of 60 seconds may end a little before.
    return math.floor(least / unit + (1 - _REACHED) * (measure == "cpu_seconds")) * unit
