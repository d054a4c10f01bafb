"""The table of rules: what the Taylor engine does where a torch function meets a jet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

#: The rule of each torch function, called with the function's own arguments.
RULES: dict[object, Callable[..., Any]] = {}


class NotCoveredError(Exception):
    """A rule does not cover the given arguments; torch's own derivatives are used instead."""


def taylor_rule(*functions: object) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register how the Taylor engine differentiates a torch function.

    The rule is called with the function's own arguments, at least one of which is a jet, and returns a jet. Most rules
    are one line of functions that have rules: `taylor_rule(F.softsign)(lambda x: x / (1 + torch.abs(x)))`.

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
