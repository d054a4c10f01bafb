"""Context and queries as the rows of one batch, and the table of what mixing functions do with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from dudx.engines.jet import Jet

#: What to do instead of a torch function that mixes rows: called with the rows' layout and the function's arguments.
MIXING: dict[object, Callable[..., Any]] = {}


def mixing_rule(*functions: object) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register how a function that mixes the rows of a batch acts on context and queries.

    The rule is called as `rule(rows, function, *args, **kwargs)`. Where the call mixes no rows, it returns
    `function(*args, **kwargs)`. Otherwise `context, queries = rows.split(x)` and
    `leaving, entering = rows.exchange(context, queries)` say which entries of the context leave and what takes their
    place, and `rows.join` makes rows of the results.
    """

    def register(rule: Callable[..., Any]) -> Callable[..., Any]:
        MIXING.update(dict.fromkeys(functions, rule))
        return rule

    return register


class Rows:
    """Where the rows are: `size` of context, then queries up to `total`, in blocks with one row for each sample.

    Args:
        size: samples in the context.
        total: rows of context and queries together.
        places: the samples that the rows of a block belong to; None means all of them, in order.
        replace: whether a query takes its sample's place in what others see of the context, or leaves it as it is.
        update_statistics: whether running statistics follow the context.
        at_rest: whether the queries are known to be where the context has them, as in a part of the verification.
    """

    def __init__(
        self,
        size: int,
        total: int,
        places: Tensor | None = None,
        replace: bool = True,
        update_statistics: bool = False,
        at_rest: bool = False,
    ):
        self.size, self.total, self.places = size, total, places
        self.replace, self.update_statistics, self.at_rest = replace, update_statistics, at_rest

    @property
    def block(self) -> int:
        """Rows in a block of queries."""
        return self.size if self.places is None else len(self.places)

    def leads(self, x: Any) -> bool:
        """Whether the first axis of x counts the rows."""
        return isinstance(getattr(x, "shape", None), torch.Size) and x.ndim > 0 and x.shape[0] == self.total

    def split(self, x: Any) -> tuple[Any, Any]:
        """The context (B, …) and the queries (blocks, samples, …)."""
        return x[: self.size], x[self.size :].reshape(-1, self.block, *x.shape[1:])

    def exchange(self, context: Any, queries: Any) -> tuple[Any, Any]:
        """What leaves the context, (samples, …), and what enters, (blocks, samples, …): queries, or all as it was."""
        leaving = context if self.places is None else context[self.places]
        return leaving, queries if self.replace else leaving

    def join(self, context: Any, queries: Any) -> Any:
        """Context and queries as rows again; results that are the same for several samples or blocks are repeated."""
        count, rest = self.total - self.size, context.shape[1:]
        full = (count // self.block, self.block, *rest)
        context = context if len(context) == self.size else context.expand(self.size, *rest)
        queries = queries if queries.shape == full else queries.expand(full)
        return torch.cat([context, queries.reshape(count, *rest)])

    def owners(self, device: torch.device) -> Tensor:
        """The sample that each row belongs to."""
        samples = torch.arange(self.size, device=device)
        places = samples if self.places is None else self.places
        return torch.cat([samples, places.repeat((self.total - self.size) // self.block)])


class Mode(TorchFunctionMode):
    """Sends torch functions that mix rows to their rules; the others, and those inside a rule, act as always.

    Args:
        rows: where the rows are.
        watch: sees every call, as `watch(rows, function, args, kwargs, call)`, and returns what `call()` does.
    """

    def __init__(self, rows: Rows, watch: Callable[..., Any] | None = None):
        super().__init__()
        self.rows, self.watch = rows, watch

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self.watch is not None:
            return self.watch(self.rows, func, args, kwargs, lambda: self._called(func, args, kwargs))
        return self._called(func, args, kwargs)

    def _called(self, func: Any, args: Any, kwargs: Any) -> Any:
        rule, original = MIXING.get(func), Original(func)
        return original(*args, **kwargs) if rule is None else rule(self.rows, original, *args, **kwargs)


class Original:
    """A torch function as it is without isolation, for tensors and jets; methods of Tensor would refuse a jet."""

    def __init__(self, function: Any):
        self.function, self.__name__ = function, getattr(function, "__name__", "")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if args and isinstance(args[0], Jet):
            return Jet.__torch_function__(self.function, (), args, kwargs)
        return self.function(*args, **kwargs)
