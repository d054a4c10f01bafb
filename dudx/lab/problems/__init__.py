"""Problems by name. Each file of this folder with a `PROBLEM` registers one by the file's name.

A `PROBLEM` is a `Problem`, or a function without arguments that returns one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from dudx.errors import InputError
from dudx.lab.named_objects import held_in, look_up, made
from dudx.lab.problems.default_device import check_default_device
from dudx.lab.problems.problem import Condition, Problem

__all__ = ["Condition", "Problem", "problem", "problems"]


@cache
def problems() -> dict[str, Callable[[], Problem]]:
    """Return the functions that make the problems, by their names in settings and on the command line."""
    return held_in(__name__, "PROBLEM")


def problem(name: str) -> Problem:
    """Return a problem by its name, or your own by `package.module:name`."""
    check_default_device()  # before the problem fails because of it
    maker = look_up(name, problems(), "problem")
    found = maker if isinstance(maker, Problem) else made(name, "problem", maker)
    if not isinstance(found, Problem):
        raise InputError(f"The problem {name!r} makes a {type(found).__name__}, not a Problem.")
    return found
