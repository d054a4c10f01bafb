"""Table of the rules for torch functions that mix the rows of a batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

#: What to do instead of a torch function that mixes rows: called with the rows and the function's arguments.
MIXING: dict[object, Callable[..., Any]] = {}
#: What a function does to the context by itself, where that is not what it always does.
CONTEXT: dict[object, Callable[..., Any]] = {}


def mixing_rule(
    *functions: object, context: Callable[..., Any] | None = None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register how a function that mixes the rows of a batch acts on queries that see a context.

    The rule is called as `rule(rows, function, *args, **kwargs)` for the queries, after the network has seen the
    context. Where the call mixes no rows, it returns `function(*args, **kwargs)`. Otherwise
    `context, queries = rows.split(x)`, of an argument x, and `leaving, entering = rows.exchange(context, queries)` say
    which entries of the context leave and what takes their place, and `rows.join` makes rows of the results.

    Args:
        functions: the torch functions it is for.
        context: called as `context(context_pass, function, *args, **kwargs)` for the context by itself, instead of the
            function; what it puts in `context_pass.note` the rule finds in `rows.note`.

    Example:
        >>> @dudx.mixing_rule(torch.logcumsumexp)
        ... def along_features(rows, function, x, dim):
        ...     return function(x, dim)  # over features each row is by itself
    """

    def register(rule: Callable[..., Any]) -> Callable[..., Any]:
        MIXING.update(dict.fromkeys(functions, rule))
        if context is not None:
            CONTEXT.update(dict.fromkeys(functions, context))
        return rule

    return register
