"""What mixing functions saw of the context, what they see of the queries, and the table of what they do with both."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from dudx.engines.taylor.jet import Jet
from dudx.errors import InputError, UnsupportedError

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
        context: called as `context(recording, function, *args, **kwargs)` for the context by itself, instead of the
            function; what it puts in `recording.note` the rule finds in `rows.note`.
    """

    def register(rule: Callable[..., Any]) -> Callable[..., Any]:
        MIXING.update(dict.fromkeys(functions, rule))
        if context is not None:
            CONTEXT.update(dict.fromkeys(functions, context))
        return rule

    return register


class Record:
    """One call of a mixing function for the context: its rule and arguments, and what else the rule wants to know."""

    def __init__(self, rule: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]):
        self.rule, self.args, self.kwargs = rule, args, kwargs
        self.note: Any = None
        #: How often tensors had been written to, after the call.
        self.versions: list[int] = []

    def tensors(self) -> Iterator[Tensor]:
        return (value for value in (*self.args, *self.kwargs.values()) if isinstance(value, Tensor))

    def overwritten(self) -> bool:
        """Whether the network has written into an argument since, so that it no longer is what the function saw."""
        return _versions(self.tensors()) != self.versions


def _versions(tensors: Iterator[Tensor]) -> list[int]:
    return [] if torch.compiler.is_compiling() else [t._version for t in tensors if not t.is_inference()]


class Recording(TorchFunctionMode):
    """Notes what mixing functions see while the network runs on the context by itself.

    Args:
        size: samples in the context.
        update_statistics: whether running statistics follow the context.
        copies: keep copies of arguments, for a network that writes into them later.
    """

    def __init__(self, size: int, update_statistics: bool, copies: bool = False):
        super().__init__()
        self.size, self.update_statistics, self.copies = size, update_statistics, copies
        self.records: list[Record] = []
        self.note: Any = None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        rule = MIXING.get(func)
        if rule is None:
            return func(*args, **kwargs)
        record = Record(rule, args, kwargs)
        if self.copies:
            named = {name: self._copy(value) for name, value in kwargs.items()}
            record = Record(rule, tuple(self._copy(value) for value in args), named)
        self.note = None
        by_itself = CONTEXT.get(func)
        result = func(*args, **kwargs) if by_itself is None else by_itself(self, func, *args, **kwargs)
        record.note, record.versions = self.note, _versions(record.tensors())
        self.records.append(record)
        return result

    def _copy(self, value: Any) -> Any:
        return value.clone() if isinstance(value, Tensor) and self.size in value.shape else value

    def overwritten(self) -> bool:
        """Whether some of what was noted is no longer what a function saw."""
        return not torch.compiler.is_compiling() and any(record.overwritten() for record in self.records)

    def ambiguous(self) -> bool:
        """Whether as many queries as samples would leave open which axis of an argument counts them."""
        firsts = (next(record.tensors(), None) for record in self.records)
        return any(x is not None and list(x.shape).count(self.size) > 1 for x in firsts)


class Rows:
    """The rows of the queries, in blocks with one row for each sample, and what is known of the context.

    Args:
        size: samples in the context.
        count: rows of queries.
        places: the samples that the rows of a block belong to; None means all of them, in order.
        replace: whether a query takes its sample's place in what others see of the context, or leaves it as it is.
        moved: whether the queries are known to be elsewhere than the context, as in a part of the verification.
    """

    def __init__(self, size: int, count: int, places: Tensor | None = None, replace: bool = True, moved: bool = False):
        self.size, self.count, self.places = size, count, places
        self.replace, self.moved = replace, moved
        self.record, self.args, self.kwargs = Record(Original, (), {}), (), {}

    def take(self, record: Record, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Go on to the next call: what the function saw of the context, and its arguments for the queries."""
        self.record, self.args, self.kwargs = record, args, kwargs

    @property
    def note(self) -> Any:
        """What was noted of this call for the context."""
        return self.record.note

    @property
    def block(self) -> int:
        """Rows in a block of queries."""
        return self.size if self.places is None else len(self.places)

    @property
    def aligned(self) -> bool:
        """Whether row j belongs to sample j, for all samples and once."""
        return self.places is None and self.count == self.size

    def of_context(self, x: Any) -> Any:
        """What the function was given for the context where it is given x now."""
        for now, then in zip(self.args, self.record.args, strict=False):
            if now is x:
                return then
        for name, now in self.kwargs.items():
            if now is x and name in self.record.kwargs:
                return self.record.kwargs[name]
        raise InputError(
            "A mixing rule splits an argument of its function as it is; compute with context and queries afterwards."
        )

    def axes(self, x: Any) -> list[int]:
        """The axes of an argument that count rows."""
        then = self.of_context(x)
        if not isinstance(then, Tensor) or then is x or then.ndim != x.ndim:
            return []
        lengths = list(zip(then.shape, x.shape, strict=True))
        found = [axis for axis, pair in enumerate(lengths) if pair == (self.size, self.count)]
        same = all(pair[0] == pair[1] for axis, pair in enumerate(lengths) if axis not in found)
        return found if same else []

    def leads(self, x: Any) -> bool:
        """Whether the first axis of an argument counts the rows."""
        return isinstance(getattr(x, "shape", None), torch.Size) and 0 in self.axes(x)

    def pair(self, x: Any) -> tuple[Any, Any]:
        """As `split`, without an axis for the blocks where there is only one: what is not done need not be undone."""
        context = self.of_context(x)
        return context, x if self.count == self.block else x.reshape(-1, self.block, *x.shape[1:])

    def split(self, x: Any) -> tuple[Any, Any]:
        """An argument of the function for the context (B, …) and for the queries (blocks, samples, …)."""
        return self.of_context(x), x.reshape(-1, self.block, *x.shape[1:])

    def exchange(self, context: Any, queries: Any) -> tuple[Any, Any]:
        """What leaves the context, (samples, …), and what enters, (blocks, samples, …): queries, or all as it was."""
        leaving = context if self.places is None else context[self.places]
        return leaving, queries if self.replace else leaving

    def join(self, context: Any, queries: Any) -> Any:
        """Results as rows again; one that is the same for several samples or blocks is repeated."""
        rest = context.shape[1:]
        if queries.shape == (self.count, *rest):
            return queries
        full = (self.count // self.block, self.block, *rest)
        queries = queries if queries.shape == full else queries.expand(full)
        return queries.reshape(self.count, *rest)

    def owners(self, device: torch.device) -> Tensor:
        """The sample that each row belongs to."""
        places = torch.arange(self.size, device=device) if self.places is None else self.places
        return places.repeat(self.count // self.block)

    def owned(self, of_context: Any, axis: int) -> Any:
        """What belongs to samples along an axis as belonging to rows."""
        return of_context if self.aligned else of_context.index_select(axis, self.owners(of_context.device))


class Mode(TorchFunctionMode):
    """Sends torch functions that mix rows to their rules; the others, and those inside a rule, act as always.

    Args:
        rows: where the rows are.
        records: what mixing functions saw of the context, in the order in which the network calls them.
        watch: sees every call, as `watch(rows, function, args, kwargs, call)`, and returns what `call()` does.
    """

    def __init__(self, rows: Rows, records: list[Record], watch: Callable[..., Any] | None = None):
        super().__init__()
        self.rows, self.records, self.watch = rows, records, watch
        self.met = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self.watch is not None:
            return self.watch(self.rows, func, args, kwargs, lambda: self._called(func, args, kwargs))
        return self._called(func, args, kwargs)

    def _called(self, func: Any, args: Any, kwargs: Any) -> Any:
        rule, original = MIXING.get(func), Original(func)
        record = None if rule is None else self._record(rule, args)
        if rule is None or record is None:
            return original(*args, **kwargs)
        self.rows.take(record, args, kwargs)
        return rule(self.rows, original, *args, **kwargs)

    def _record(self, rule: Callable[..., Any], args: Any) -> Record | None:
        """What the function saw of the context; None for a call that is not the network's own."""
        record = self.records[self.met] if self.met < len(self.records) else None
        if torch.compiler.is_compiling():  # which also shows what jets do inside
            if record is None or record.rule is not rule or _axes(record.args) != _axes(args):
                return None
        elif record is None or record.rule is not rule:
            raise _out_of_step()
        self.met += 1
        return record

    def finish(self) -> None:
        """Make sure that every call for the context had its counterpart."""
        if self.met != len(self.records):
            raise _out_of_step()


def _axes(args: Any) -> int:
    """How many axes the first argument has, by which calls of the same function are told apart."""
    return getattr(args[0], "ndim", 0) if args else 0


def _out_of_step() -> UnsupportedError:
    return UnsupportedError(
        "Isolated, this network does not call the same functions over the batch, in the same order, for queries as for "
        "the context; use dudx.isolate(model, x, exact=True)."
    )


class Original:
    """A torch function as it is without isolation, for tensors and jets; methods of Tensor would refuse a jet."""

    def __init__(self, function: Any):
        self.function, self.__name__ = function, getattr(function, "__name__", "")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if args and isinstance(args[0], Jet):
            return Jet.__torch_function__(self.function, (), args, kwargs)
        return self.function(*args, **kwargs)
