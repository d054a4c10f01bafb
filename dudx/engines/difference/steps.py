"""The steps of a difference engine, as they are given and kept: one, one for each axis, or one for each order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

from torch import Tensor

from dudx import errors
from dudx.errors import InputError

Value = TypeVar("Value")


class ByOrder(Mapping[int, Value]):
    """Something for each derivative order, which cannot be changed: an engine that holds it can be hashed."""

    def __init__(self, values: Mapping[int, Value] | None = None):
        self._values = dict(values or {})

    def __getitem__(self, order: int) -> Value:
        return self._values[order]

    def __iter__(self) -> Iterator[int]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __hash__(self) -> int:
        return hash(frozenset(self._values.items()))

    def __repr__(self) -> str:
        return repr(self._values)


def as_step(value: object) -> float | tuple[float, ...]:
    """A step, or one for each axis."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        if not value:
            raise InputError("A step for each axis must name at least one axis; got an empty sequence.")
        return tuple(errors.positive_step(one, "step of each axis") for one in value)
    return errors.positive_step(value)


def step_by_order(steps: object, name: str) -> ByOrder[float | tuple[float, ...]]:
    """A step for each derivative order."""
    if not isinstance(steps, Mapping) or not steps:
        raise InputError(f"{name} takes a step for each derivative order, steps={{1: 1e-2, 2: 5e-2}}; got {steps!r}.")
    for order in steps:
        if not errors.is_whole(order):
            raise InputError(f"The keys of {name}'s steps are derivative orders, 1 or more; got {order!r}.")
    return ByOrder({order: as_step(step) for order, step in steps.items()})


def fitting_step(step: float | tuple[float, ...] | None, x: Tensor) -> float | tuple[float, ...]:
    """The step, if it has as many numbers as the points have columns."""
    assert step is not None
    if isinstance(step, tuple) and len(step) != x.shape[1]:
        raise InputError(f"The engine has steps for {len(step)} axes and the points have {x.shape[1]} columns.")
    return step
