"""Equations that count less at first, where a start that does not fit the boundary makes the solution singular."""

from __future__ import annotations

import inspect
from typing import Any

from dudx.residual import Residual


def ramped(residual: Residual[Any], start: float, ramp: float) -> Residual[Any]:
    """The residual times √(τ / (τ + ramp)) at a time τ after the start; the time is the last input.

    Its square then counts in full long after `ramp`, and not at all at the start.
    """
    time = residual.inputs[-1]
    signature = inspect.signature(residual.function)
    own = time in signature.parameters

    def function(**given: Any) -> Any:
        passed = given[time] - start
        scale = (passed / (passed + ramp)).sqrt()
        returned = residual.function(**(given if own else {k: v for k, v in given.items() if k != time}))
        return tuple(scale * each for each in returned) if isinstance(returned, tuple | list) else scale * returned

    parameter = inspect.Parameter(time, inspect.Parameter.KEYWORD_ONLY)
    parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in signature.parameters.values()]
    function.__signature__ = signature.replace(parameters=parameters + [parameter] * (not own))  # type: ignore[attr-defined]
    return Residual(function, residual.inputs, residual.data)
