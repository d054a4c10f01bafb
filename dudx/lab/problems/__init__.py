"""The problems. The folder is the registry: a file of it that holds a `PROBLEM` is one, by the file's name.

A `PROBLEM` is a function without arguments that returns a `Problem`, or one itself.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from dudx.errors import InputError
from dudx.lab.named_objects import held_in, look_up, made
from dudx.lab.problems.default_device import refuse_another_default
from dudx.lab.problems.problem import Condition, Problem

__all__ = ["Condition", "Problem", "problem", "problems"]


@cache
def problems() -> dict[str, Callable[[], Problem]]:
    """What makes each problem, by the word for it in settings and on the command line."""
    return held_in(__name__, "PROBLEM")


def problem(name: str) -> Problem:
    """The problem of that name, or of `package.module:name` for one of your own."""
    refuse_another_default()  # before making it fails of that
    maker = look_up(name, problems(), "problem")
    found = maker if isinstance(maker, Problem) else made(name, "problem", maker)
    if not isinstance(found, Problem):
        raise InputError(f"The problem {name!r} makes a {type(found).__name__}, not a Problem.")
    return found
