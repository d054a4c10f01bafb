"""Table of the rules for torch functions that mix the rows of a batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

#: Rules for torch functions that mix rows, called with the rows, the function and its arguments.
MIXING: dict[object, Callable[..., Any]] = {}
#: Replacements of functions in the pass of the context.
CONTEXT: dict[object, Callable[..., Any]] = {}


def mixing_rule(
    *functions: object, context: Callable[..., Any] | None = None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a rule for a torch function that mixes the rows of a batch.

    The rule is called as `rule(rows, function, *args, **kwargs)` for the queries, after the network has seen the
    context. Where the call mixes no rows, it returns `function(*args, **kwargs)`. Otherwise
    `context, queries = rows.split(x)`, of an argument x, and `leaving, entering = rows.exchange(context, queries)` say
    which entries of the context leave and what takes their place, and `rows.join` makes rows of the results.

    Args:
        functions: the torch functions that the rule replaces.
        context: called as `context(context_pass, function, *args, **kwargs)` instead of the function in the pass of the
            context; the rule finds `context_pass.note` as `rows.note`.

    Example:
        >>> @dudx.mixing_rule(torch.logcumsumexp)
        ... def along_features(rows, function, x, dim):
        ...     return function(x, dim)  # over features, rows do not mix
    """

    def register(rule: Callable[..., Any]) -> Callable[..., Any]:
        MIXING.update(dict.fromkeys(functions, rule))
        if context is not None:
            CONTEXT.update(dict.fromkeys(functions, context))
        return rule

    return register
