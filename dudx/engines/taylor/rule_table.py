"""Filling the table of rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from dudx.engines.taylor.chain_and_product import compose
from dudx.engines.taylor.jet import RULES, Jet

Derivatives = Callable[[Tensor, int], list[Tensor]]


def taylor_rule(*functions: object) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register what the Taylor engine does for a torch function.

    The rule is called with the function's own arguments, of which at least one is a jet, and returns a jet. Most rules
    are a line in terms of functions that have one: `taylor_rule(F.softsign)(lambda x: x / (1 + torch.abs(x)))`.

    Example:
        >>> @dudx.taylor_rule(torch.special.logit)
        ... def logit(x):
        ...     return torch.log(x / (1 - x))
        >>> x = torch.full((1, 1), 0.5)
        >>> dudx.evaluate(torch.special.logit, x, dudx.D(0), dudx.Taylor()).item()
        4.0
    """

    def register(rule: Callable[..., Any]) -> Callable[..., Any]:
        RULES.update(dict.fromkeys(functions, rule))
        return rule

    return register


def elementwise(*functions: object) -> Callable[[Derivatives], Derivatives]:
    """Register an elementwise function by `derivatives(x, n)`: its value and first n derivatives at x."""

    def register(derivatives: Derivatives) -> Derivatives:
        def rule(x: Jet) -> Jet:
            return compose(x, derivatives(x.value, x.layout.top))

        taylor_rule(*functions)(rule)
        return derivatives

    return register


def is_jet(value: object) -> bool:
    return isinstance(value, Jet)


def leaves(value: Any) -> list[Any]:
    """The arguments, also those inside lists."""
    return [leaf for item in value for leaf in leaves(item)] if isinstance(value, tuple | list) else [value]


def written(x: Jet, result: Jet, inplace: bool) -> Jet:
    """The result of a function, which is also the content of its argument from now on if it works in place."""
    return x._become(result) if inplace else result


def mapped(value: Any, replace: Callable[[Jet], Any]) -> Any:
    """The arguments with every jet replaced, also inside containers."""
    if isinstance(value, Jet):
        return replace(value)
    if isinstance(value, tuple | list):
        return type(value)(mapped(item, replace) for item in value)
    if isinstance(value, dict):
        return {key: mapped(item, replace) for key, item in value.items()}
    return value
