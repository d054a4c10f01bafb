"""Make sure that a network has been isolated, and find the function that is to blame if it has not."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import resolve_name

from dudx import checks
from dudx.coupling.isolated import Together
from dudx.coupling.rows import Mode, Rows
from dudx.errors import CoupledModelError, InputError, UnsupportedError, first_line
from dudx.kernels import slow_attention
from dudx.network.detect import difference, forget, met_often_enough, rounding
from dudx.network.sandbox import unobserved, without_graph

_GOLDEN = (math.sqrt(5) - 1) / 2


def verify(isolated: Together) -> None:
    """Raise an error unless queries are independent, and have the plain network's output where it has them.

    A network is looked at when it is met for the 1st, 2nd, 4th, 8th … time in this mode and with this batch size.
    """
    model, context = isolated.model, isolated.context.detach()
    purpose = ("isolate", isolated.replace, tuple(context.shape), context.dtype)
    if context.is_meta or torch.compiler.is_compiling() or met_often_enough(model, purpose):
        return
    try:
        with without_graph(model, context):
            _look_at(Together(model, context, update_statistics=False, replace=isolated.replace))
    except Exception as error:
        forget(model)
        if isinstance(error, CoupledModelError | InputError | UnsupportedError):
            raise
        with without_graph(model, context):
            _plain(model, context, 0)  # a network that fails by itself says so here
        raise CoupledModelError(
            f"Isolated, this network fails ({first_line(error)}); here a result over the "
            "batch has a row for each sample, which it may not expect: use dudx.isolate(model, x, exact=True)."
        ) from error


def _look_at(isolated: Together) -> None:
    for queries, moved, kept in _moves(isolated.context):
        still, then = (_seen(isolated, rows) for rows in (queries, moved))
        change = difference(then, still)[kept]
        if not bool((change <= rounding(still)).all()):
            raise CoupledModelError(_blame(isolated, queries, moved, kept, change))
        _seen(isolated, moved[: len(isolated.context)], moved=True)
    _compare(isolated)


def _moves(context: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Two blocks of queries, the same after half of them moved far, and which rows did not.

    Where one block's first half moves, it is the other's second half, so that a row meets others of its own sample, of
    its own block and of neither that have moved. The third time it is a half without order, for the sake of influence
    that has the symmetry of the others.
    """
    cloud = 1 + context.abs().amax(0)
    # Where a network is forced to be zero, as on a boundary, nothing would be seen.
    queries = (context + cloud / 13).repeat(2, 1)
    first = torch.arange(len(context), device=context.device) < len(context) // 2
    squares = torch.arange(1, len(queries) + 1, dtype=torch.float64).square()
    scattered = (squares * _GOLDEN % 1 < 0.5).to(context.device)
    for half in (torch.cat([first, ~first]), torch.cat([~first, first]), scattered):
        yield queries, torch.where(half.unsqueeze(1), -queries - math.sqrt(2) * cloud, queries), ~half


def _seen(isolated: Together, queries: Tensor, mode: Any = Mode, moved: bool = False) -> Tensor:
    with unobserved(isolated.model, queries.device):
        return checks.forward(lambda x: isolated.under(x, mode, moved), queries.clone()).detach()


def _compare(isolated: Together) -> None:
    """Queries where the context has them must have the plain output, whatever their number."""
    model, context = isolated.model, isolated.context
    # Two blocks, since with one a network that counts its rows would count as many as the context has.
    ours = _seen(isolated, context.repeat(2, 1))
    plain, other = (_plain(model, context, seed).repeat(2, 1) for seed in (0, 1))
    # They are computed in different ways, so they agree to fewer digits than equal computations do.
    tolerance = torch.finfo(plain.dtype).eps ** 0.5 * plain.nan_to_num(0, 0, 0).abs().amax(0)
    if bool((difference(ours, plain) <= tolerance).all()) or not torch.equal(plain, other):
        return  # a network that draws random numbers has no output to compare with
    error = float(difference(ours, plain).amax())
    raise CoupledModelError(
        f"Isolated, this network's output differs from its plain output by {error:.1e}; it computes with the number of "
        "rows, x.shape[0], perhaps, and here that is the number of queries: use dudx.isolate(model, x, exact=True)."
    )


def _plain(model: Any, context: Tensor, seed: int) -> Tensor:
    with unobserved(model, context.device, seed), slow_attention():
        return checks.forward(model, context.clone()).detach()


# -- who it was ------------------------------------------------------------------------------------------------------


def _blame(isolated: Together, queries: Tensor, moved: Tensor, kept: Tensor, change: Tensor) -> str:
    with contextlib.suppress(Exception):  # a network that does something else the second time stays unexplained
        where = _culprit(isolated, queries, moved, kept)
        if where is not None:
            return (
                f"isolate has no rule for {where}, by which the samples of this network influence each other; use "
                "dudx.isolate(model, x, exact=True), or dudx.PerSampleAD() as the engine, or add a rule with "
                "dudx.mixing_rule."
            )
    return (
        "This network mixes samples in a way isolate has no rule for (rows that did not move changed by "
        f"{float(change.amax()):.1e}); use dudx.isolate(model, x, exact=True), or dudx.PerSampleAD() as the engine, or "
        "add a rule with dudx.mixing_rule."
    )


def _culprit(isolated: Together, queries: Tensor, moved: Tensor, kept: Tensor) -> str | None:
    """The first function whose result changes in rows that stayed, though none of its arguments does there."""
    with _Recorder(isolated.model, kept.nonzero()[:, 0]) as recorder:
        before, after = recorder.calls(isolated, queries), recorder.calls(isolated, moved)
    for once, again in zip(before, after, strict=False):
        if once.name != again.name:
            return None
        if _alike(once.given, again.given) and not _alike(once.returned, again.returned):
            return f"{once.name} over the batch" + (f" (in module {once.module!r})" if once.module else "")
    return None


@dataclass(frozen=True)
class _Call:
    """A call of a torch function: what went in and came out, as far as it belongs to rows that stayed."""

    name: str
    #: The innermost module it happened in, as in `named_modules()`.
    module: str
    given: list[Tensor]
    returned: list[Tensor]


class _Recorder:
    """Notes the calls of torch functions while the network runs, and the modules they happen in."""

    def __init__(self, model: Any, stayed: Tensor):
        self.model, self.stayed = model, stayed
        self.modules: list[str] = []
        self.log: list[_Call] = []
        self.hooks: list[Any] = []

    def __enter__(self) -> _Recorder:
        for name, module in self.model.named_modules() if isinstance(self.model, nn.Module) else ():
            self.hooks.append(module.register_forward_pre_hook(lambda *_, name=name: self.modules.append(name)))
            self.hooks.append(module.register_forward_hook(self._left, always_call=True))
        return self

    def __exit__(self, *_: object) -> None:
        for hook in self.hooks:
            hook.remove()

    def _left(self, *_: object) -> None:
        self.modules.pop()

    def calls(self, isolated: Together, queries: Tensor) -> list[_Call]:
        """The calls in the order they are made."""
        self.log, self.modules[:] = [], []
        _seen(isolated, queries, lambda rows, records: Mode(rows, records, self.watched))
        return self.log

    def watched(self, rows: Rows, function: Any, args: Any, kwargs: Any, call: Any) -> Any:
        """Make a call and note it."""
        given = self._stayed(rows, (args, kwargs))  # before the call, which may write into them
        result = call()
        name = resolve_name(function) or getattr(function, "__name__", str(function))
        module = self.modules[-1] if self.modules else ""
        self.log.append(_Call(name, module, given, self._stayed(rows, result)))
        return result

    def _stayed(self, rows: Rows, value: Any) -> list[Tensor]:
        """The tensors in a value, cut down to rows that stayed along every axis that counts rows."""
        if isinstance(value, Tensor):
            for axis, length in enumerate(value.shape):
                value = value.index_select(axis, self.stayed) if length == rows.count else value
            return [value.clone()]
        if isinstance(value, dict):
            value = list(value.values())
        return [part for item in value for part in self._stayed(rows, item)] if isinstance(value, tuple | list) else []


def _alike(before: list[Tensor], after: list[Tensor]) -> bool:
    return len(before) == len(after) and all(
        a.shape == b.shape and torch.allclose(a.double(), b.double(), **_tolerance(a), equal_nan=True)
        for a, b in zip(before, after, strict=True)
    )


def _tolerance(x: Tensor) -> dict[str, float]:
    if not x.is_floating_point():
        return {"rtol": 0.0, "atol": 0.0}
    largest = float(x.nan_to_num(0, 0, 0).abs().amax()) if x.numel() else 0.0
    return {"rtol": 0.0, "atol": 64 * torch.finfo(x.dtype).eps * largest}
