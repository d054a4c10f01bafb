"""The problems by name; a new one is a file with a function that returns a `Problem`, and a line here."""

from __future__ import annotations

from collections.abc import Callable

from dudx.lab.names import look_up
from dudx.lab.problems.base import Condition, Problem
from dudx.lab.problems.burgers import burgers
from dudx.lab.problems.heat import heat
from dudx.lab.problems.poisson import poisson

__all__ = ["PROBLEMS", "Condition", "Problem", "problem"]

PROBLEMS: dict[str, Callable[[], Problem]] = {"poisson": poisson, "burgers": burgers, "heat": heat}


def problem(name: str) -> Problem:
    """The problem of that name, or of `package.module:function` for one of your own."""
    return look_up(name, PROBLEMS, "problem")()
