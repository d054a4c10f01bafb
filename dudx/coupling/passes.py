"""The two passes of an isolated network: of the context, and of queries that see it by the rules in a table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from dudx.backend.differentiable_kernels import called
from dudx.coupling.query_rows import ContextCall, QueryRows
from dudx.errors import UnsupportedError

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


class ContextPass(TorchFunctionMode):
    """Notes what mixing functions see while the network runs on the context by itself.

    Args:
        size: samples in the context.
        update_statistics: whether running statistics follow the context.
    """

    def __init__(self, size: int, update_statistics: bool):
        super().__init__()
        self.size, self.update_statistics = size, update_statistics
        self.calls: list[ContextCall] = []
        self.note: Any = None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        rule = MIXING.get(func)
        if rule is None:
            return func(*args, **kwargs)
        call = ContextCall(rule, args, kwargs)
        self.note = None
        by_itself = CONTEXT.get(func)
        result = func(*args, **kwargs) if by_itself is None else by_itself(self, func, *args, **kwargs)
        call.note, call.versions = self.note, call.written()
        self.calls.append(call)
        return result

    def finish(self) -> None:
        """Make sure that what was noted is still what functions saw."""
        if any(call.written() != call.versions for call in self.calls):
            raise UnsupportedError(
                "This network writes into what a function over the batch has seen; use dudx.isolate(model, x, "
                "exact=True)."
            )

    def ambiguous(self) -> bool:
        """Whether as many queries as samples would leave open which axis of an argument counts them."""
        firsts = (next(call.tensors(), None) for call in self.calls)
        return any(x is not None and list(x.shape).count(self.size) > 1 for x in firsts)

    def second_hand(self) -> bool:
        """Whether influence may pass through two of the calls that mix rows.

        It may not where all of them see what the first one saw, as the mean and the deviation of the same tensor do.
        """
        first, *others = [call for call in self.calls if call.mixes] or [None]
        seen = {id(tensor) for tensor in first.tensors()} if first else set()
        return any(id(tensor) not in seen for call in others if call for tensor in call.tensors())


class QueryPass(TorchFunctionMode):
    """Sends torch functions that mix rows to their rules; the others, and those inside a rule, act as always.

    Args:
        rows: where the rows are.
        calls: those of mixing functions for the context, in the order in which the network makes them.
    """

    def __init__(self, rows: QueryRows, calls: list[ContextCall]):
        super().__init__()
        self.rows, self.calls, self.met = rows, calls, 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        rule = MIXING.get(func)
        call = None if rule is None else self._counterpart(rule, args)
        if rule is None or call is None:
            return called(func, args, kwargs)
        self.rows.take(call, args, kwargs)
        return rule(self.rows, _Unmixed(func, self.rows), *args, **kwargs)

    def _counterpart(self, rule: Callable[..., Any], args: Any) -> ContextCall | None:
        """What the function saw of the context; None for a call that is not the network's own."""
        call = self.calls[self.met] if self.met < len(self.calls) else None
        if torch.compiler.is_compiling():  # which also shows what jets do inside
            if call is None or call.rule is not rule or _axes(call.args) != _axes(args):
                return None
        elif call is None or call.rule is not rule:
            raise _out_of_step()
        self.met += 1
        return call

    def finish(self) -> None:
        """Make sure that every call for the context had its counterpart."""
        if self.met != len(self.calls):
            raise _out_of_step()


def _axes(args: Any) -> int:
    """How many axes the first argument has, by which calls of the same function are told apart."""
    return getattr(args[0], "ndim", 0) if args else 0


def _out_of_step() -> UnsupportedError:
    return UnsupportedError(
        "Isolated, this network does not call the same functions over the batch, in the same order, for queries as for "
        "the context; use dudx.isolate(model, x, exact=True)."
    )


class _Unmixed:
    """A torch function as it is without isolation: a rule that calls it says that no rows mix."""

    def __init__(self, function: Any, rows: QueryRows):
        self.function, self.rows, self.__name__ = function, rows, getattr(function, "__name__", "")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.rows.alone()
        return called(self.function, args, kwargs)
