"""Where in a network samples start to influence each other: the innermost modules that mix the rows of a batch."""

from __future__ import annotations

import contextlib
import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from dudx import checks
from dudx.checks import Model
from dudx.kernels import differentiable_kernels
from dudx.network.detect import difference, moves, rounding
from dudx.network.sandbox import unobserved

#: A module's name and the number of the call.
_Call = tuple[str, int]


@dataclass(frozen=True)
class Mixing:
    """A module whose rows influence each other even where the rows that go in do not."""

    #: As in `model.named_modules()`; empty for the network's own code, and for a function.
    name: str
    type: str
    #: The largest change of a row that stayed while others moved, relative to the largest value.
    change: float


def output(model: Model, rows: Tensor, seed: int = 0) -> Tensor:
    """The output, with nothing of the pass left behind."""
    with unobserved(model, rows.device, seed):
        return checks.forward(model, rows.clone()).detach()


def relative_change(now: Tensor, still: Tensor, moved: Tensor) -> float:
    """The largest change outside the moved rows, relative to the largest value there is; 0 within rounding."""
    now, still = now.detach(), still.detach()
    change = difference(now, still).masked_fill(moved, 0).amax()
    if bool(change <= rounding(still.reshape(-1, 1))):
        return 0.0
    relative = float(change / still.abs().masked_fill(~still.isfinite(), 0).amax())
    return math.inf if math.isnan(relative) else relative


def mixing_modules(model: Model, rows: Tensor) -> list[Mixing]:
    """The innermost modules that mix samples, in the order they are called."""
    watch = _Watch(model, rows)
    found, summaries = watch.changes(still_summaries=False)
    if summaries:
        # What condenses the batch has no rows to be blamed for; it is to blame if without it another module is not.
        without, _ = watch.changes(still_summaries=True)
        if without.keys() != found.keys():
            found = summaries | without
    kinds = {"": kind(model)} | {name: kind(module) for name, module in watch.modules.items()}
    return [Mixing(name, kinds[name], found[name]) for name in watch.called if name in found]


def kind(model: Model) -> str:
    """The class of a module, the name of a function."""
    return type(model).__name__ if isinstance(model, nn.Module) else getattr(model, "__name__", type(model).__name__)


def _named_modules(model: Model) -> dict[str, nn.Module]:
    """The modules by name, also those that a function uses; but scripted ones, as they take no hooks."""
    roots: dict[str, object] = {"": getattr(model, "__self__", model)}
    if inspect.isfunction(model):
        with contextlib.suppress(ValueError):  # raised for a variable that has no value yet
            used = inspect.getclosurevars(model)
            roots = {**used.globals, **used.nonlocals}
    return {
        name: module
        for prefix, root in roots.items()
        if isinstance(root, nn.Module)
        for name, module in root.named_modules(prefix=prefix)
        if not isinstance(module, torch.jit.ScriptModule)
    }


class _Watch:
    """Passes in which each module finds the rows that did not move as they are at rest, whatever came before it.

    A module whose output differs in such a row has then mixed samples by its own code, not by that of modules before
    it or inside it.
    """

    def __init__(self, model: Model, rows: Tensor):
        self.model, self.rows, self.modules = model, rows, _named_modules(model)
        self.rest = _Rest()
        self._run(rows, self.rest)
        self.called = list(dict.fromkeys(name for name, _ in self.rest.inputs))
        again = _Pass(self.rest, torch.zeros(len(rows), dtype=torch.bool, device=rows.device), False, {})
        self._run(rows, again)
        self.noise = again.of_rows | again.of_summaries  # what differs though nothing moved

    def changes(self, still_summaries: bool) -> tuple[dict[str, float], dict[str, float]]:
        """The largest change by module: of rows, and of outputs that have no rows, which may be held still too."""
        of_rows: dict[str, float] = {}
        of_summaries: dict[str, float] = {}
        for moved, block in moves(self.rows):
            one = _Pass(self.rest, block.flatten(), still_summaries, self.noise)
            self._run(moved, one)
            _keep_largest(of_rows, one.of_rows)
            _keep_largest(of_summaries, one.of_summaries)
        return of_rows, of_summaries

    def _run(self, x: Tensor, visitor: _Rest | _Pass) -> None:
        """A pass in which the visitor sees, and may change, what every module is given and returns."""
        calls: list[_Call] = []
        counts: dict[str, int] = {}

        def hooks(name: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
            def before(module: Model, args: Any, kwargs: Any) -> Any:
                caller = calls[-1] if calls else None
                counts[name] = counts.get(name, -1) + 1
                calls.append((name, counts[name]))
                return visitor.before(calls[-1], caller, (args, kwargs))

            def after(module: Model, args: Any, output: Any) -> Any:
                return visitor.after(calls.pop(), output)

            return before, after

        def hooked(x: Tensor) -> Tensor:
            """A function, which has no hooks of its own."""
            before, after = hooks("")
            before(self.model, (x,), {})
            u = self.model(x)
            after(self.model, (x,), u)
            return u

        with contextlib.ExitStack() as stack:
            for name, module in self.modules.items():
                before, after = hooks(name)
                stack.callback(module.register_forward_pre_hook(before, with_kwargs=True).remove)
                stack.callback(module.register_forward_hook(after).remove)
            stack.enter_context(differentiable_kernels())  # fused kernels pass over the modules inside a layer
            stack.enter_context(unobserved(self.model, x.device))
            checks.forward(self.model if "" in self.modules else hooked, x.clone())


class _Rest:
    """Remembers what goes into every call and what comes out."""

    def __init__(self) -> None:
        self.inputs: dict[_Call, Any] = {}
        self.outputs: dict[_Call, Any] = {}

    def before(self, call: _Call, caller: _Call | None, given: Any) -> None:
        self.inputs[call] = _paired(lambda now, _: now.clone(), given, given)

    def after(self, call: _Call, given: Any) -> None:
        self.outputs[call] = _paired(lambda now, _: now.clone(), given, given)


class _Pass:
    """Notes what changed in rows that did not move, and puts those rows back."""

    def __init__(self, rest: _Rest, block: Tensor, still_summaries: bool, noise: dict[str, float]):
        self.rest, self.block, self.still_summaries, self.noise = rest, block, still_summaries, noise
        self.of_rows: dict[str, float] = {}
        self.of_summaries: dict[str, float] = {}
        self.told: set[_Call] = set()  # calls that are given a changed summary, and so are not its origin

    def before(self, call: _Call, caller: _Call | None, given: Any) -> Any:
        def reset(now: Tensor, still: Tensor) -> Tensor:
            moved = self._moved(now)
            if moved is not None:
                if caller is not None:  # what came out of other modules is as it was, so the caller's code did it
                    self._note(caller, self.of_rows, now, still, moved)
                return torch.where(moved, now, still)
            if not torch.equal(now, still):
                self.told.add(call)
            return now

        return _paired(reset, given, self.rest.inputs.get(call))

    def after(self, call: _Call, given: Any) -> Any:
        def reset(now: Tensor, still: Tensor) -> Tensor:
            moved = self._moved(now)
            if moved is None:
                if call not in self.told:
                    self._note(call, self.of_summaries, now, still, torch.zeros_like(now, dtype=torch.bool))
                return still if self.still_summaries and call not in self.told else now
            self._note(call, self.of_rows, now, still, moved)
            return torch.where(moved, now, still)

        return _paired(reset, given, self.rest.outputs.get(call))

    def _note(self, call: _Call, table: dict[str, float], now: Tensor, still: Tensor, moved: Tensor) -> None:
        change = relative_change(now, still, moved) if now.is_floating_point() and now.numel() else 0.0
        if change > 10 * self.noise.get(call[0], 0.0):
            _keep_largest(table, {call[0]: change})

    def _moved(self, value: Tensor) -> Tensor | None:
        """Which entries belong to rows that moved, if an axis counts the rows or the first one blocks of them."""
        count, shape = len(self.block), value.shape
        if count in shape:
            axis, block = shape.index(count), self.block
        elif value.ndim and shape[0] and shape[0] % count == 0:
            axis, block = 0, self.block.repeat_interleave(shape[0] // count)
        else:
            return None
        return block.reshape([-1 if i == axis else 1 for i in range(value.ndim)])


def _keep_largest(table: dict[str, float], found: dict[str, float]) -> None:
    for name, value in found.items():
        table[name] = max(value, table.get(name, 0.0))


def _paired(function: Callable[[Tensor, Tensor], Tensor], now: Any, still: Any) -> Any:
    """The function of each tensor and the one in its place at rest; what has none like it there stays as it is."""
    if isinstance(now, Tensor) and isinstance(still, Tensor):
        return function(now, still) if now.shape == still.shape and now.dtype == still.dtype else now
    if type(now) in (tuple, list) and type(still) is type(now) and len(still) == len(now):
        return type(now)(_paired(function, a, b) for a, b in zip(now, still, strict=True))
    if type(now) is dict and type(still) is dict:
        return {key: _paired(function, value, still.get(key)) for key, value in now.items()}
    return now
