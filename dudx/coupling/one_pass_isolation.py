"""Isolation in one pass for all queries: cheap, and exact if samples mix in one layer."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from dudx.backend.differentiable_kernels import called
from dudx.coupling.isolated import Isolated
from dudx.coupling.mixing_rule_table import CONTEXT, MIXING
from dudx.coupling.query_rows import ContextCall, QueryRows
from dudx.errors import InputError, UnsupportedError
from dudx.network.model_checks import Model
from dudx.network.sandbox import untracked_statistics
from dudx.network.with_data import Given


class OnePassIsolated(Isolated):
    """Evaluate the context, then all queries in one batch, in which functions that mix rows follow rules.

    A rule receives its function's arguments for the context. Values of the context do not depend on queries, so
    derivatives along queries cost as much as in an uncoupled network.

    Args:
        model, context, update_statistics, places: as in `Isolated`.
        replace: if True, a query replaces its sample in the context; otherwise the context is unchanged.
    """

    def __init__(
        self, model: Model, context: Tensor, update_statistics: bool, places: Tensor | None = None, replace: bool = True
    ):
        super().__init__(model, context, update_statistics, places)
        self.replace = replace
        self.method = "each alone, in one pass" if replace else "nothing moves but the query"

    def __call__(self, x: Any) -> Any:
        return self.passed(x)[0]

    def passed(self, x: Any) -> tuple[Any, ContextPass]:
        """Return the output at the query rows, which may be several blocks as in stencils, and the context pass."""
        size, count, places = len(self.context), x.shape[0], self.places
        if self.replace:
            self.whole(count)
        elif count % self.samples:  # no sample is replaced, so any number of rows is accepted
            if isinstance(self.model, Given):
                raise InputError(
                    f"A frozen network that was given data of {self.samples} points takes these points alone; "
                    f"got {count} rows, whose data are not known."
                )
            number = torch.arange(count, device=self.context.device) % self.samples
            places = number if places is None else places[number]
        with contextlib.ExitStack() as stack:
            before = ContextPass(size, self.update_statistics)
            kept = contextlib.nullcontext() if self.update_statistics else untracked_statistics(self.model)
            with kept, before:
                self.model(self.context.clone())
            before.finish()
            stack.enter_context(untracked_statistics(self.model))
            rows = QueryRows(size, count, places, self.replace)
            if count == size and before.ambiguous():
                # One extra row, whose result is dropped, makes the row axis identifiable by its length.
                owners = rows.owners(self.context.device)
                rows = QueryRows(size, count + 1, torch.cat([owners, owners[:1]]), self.replace)
                x = torch.cat([x, x[:1]])
            network = self.model.at(rows.owners(x.device)) if isinstance(self.model, Given) else self.model
            following = stack.enter_context(QueryPass(rows, before.calls))
            u = network(x)
            following.finish()
            return (u if rows.count == count else u[:count]), before

    def _options(self) -> tuple[bool]:
        return (self.replace,)


class ContextPass(TorchFunctionMode):
    """Function mode that records the arguments of mixing functions while the network runs on the context.

    Args:
        size: samples in the context.
        update_statistics: if True, running statistics are updated from the context.
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
        """Raise UnsupportedError if recorded arguments were modified."""
        if any(call.written() != call.versions for call in self.calls):
            raise UnsupportedError(
                "This network writes into what a function over the batch has seen; use dudx.isolate(model, x, "
                "exact=True)."
            )

    def ambiguous(self) -> bool:
        """Return True if with as many queries as samples the row axis of an argument would be ambiguous."""
        firsts = (next(call.tensors(), None) for call in self.calls)
        return any(x is not None and list(x.shape).count(self.size) > 1 for x in firsts)

    def second_hand(self) -> bool:
        """Return True if influence may pass through two of the calls that mix rows.

        It cannot if all of them have the arguments of the first one, as the mean and deviation of one tensor.
        """
        first, *others = [call for call in self.calls if call.mixes] or [None]
        seen = {id(tensor) for tensor in first.tensors()} if first else set()
        return any(id(tensor) not in seen for call in others if call for tensor in call.tensors())


class QueryPass(TorchFunctionMode):
    """Function mode that replaces torch functions that mix rows by their rules.

    Args:
        rows: the rows of the queries.
        calls: calls of mixing functions for the context, in order.
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
        """Return the corresponding call for the context; None for a call that is not the network's own."""
        call = self.calls[self.met] if self.met < len(self.calls) else None
        if torch.compiler.is_compiling():  # which also traces calls made inside jets
            if call is None or call.rule is not rule or _axes(call.args) != _axes(args):
                return None
        elif call is None or call.rule is not rule:
            raise _out_of_step()
        self.met += 1
        return call

    def finish(self) -> None:
        """Raise UnsupportedError if a call for the context had no counterpart."""
        if self.met != len(self.calls):
            raise _out_of_step()


def _axes(args: Any) -> int:
    """Return the number of axes of the first argument, which distinguishes calls of a function."""
    return getattr(args[0], "ndim", 0) if args else 0


def _out_of_step() -> UnsupportedError:
    return UnsupportedError(
        "Isolated, this network does not call the same functions over the batch, in the same order, for queries as for "
        "the context; use dudx.isolate(model, x, exact=True)."
    )


class _Unmixed:
    """The original torch function; a rule that calls it declares that no rows mix."""

    def __init__(self, function: Any, rows: QueryRows):
        self.function, self.rows, self.__name__ = function, rows, getattr(function, "__name__", "")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.rows.alone()
        return called(self.function, args, kwargs)
