"""Helpers for writing rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from dudx.engines.taylor.chain_and_product import compose
from dudx.engines.taylor.jet import Jet
from dudx.engines.taylor.rule_table import taylor_rule

#: derivatives(x, n) returns the value of an elementwise function and its first n derivatives at x.
Derivatives = Callable[[Tensor, int], list[Tensor]]


def elementwise(*functions: object) -> Callable[[Derivatives], Derivatives]:
    """Register an elementwise function by its value and derivatives."""

    def register(derivatives: Derivatives) -> Derivatives:
        def rule(x: Jet) -> Jet:
            return compose(x, derivatives(x.value, x.layout.top))

        taylor_rule(*functions)(rule)
        return derivatives

    return register


def is_jet(value: object) -> bool:
    return isinstance(value, Jet)


def values_of(value: Any) -> Any:
    """Return the value of a jet; anything else unchanged."""
    return value.value if isinstance(value, Jet) else value


def written(x: Jet, result: Jet, inplace: bool) -> Jet:
    """Return the result of a function, written into its argument if the function works in place."""
    return x.become(result) if inplace else result
