"""Who mixes the samples of a batch: the torch functions in which rows influence each other, and their modules."""

from __future__ import annotations

import contextlib
import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode, resolve_name

from dudx import checks
from dudx.checks import Model
from dudx.kernels import slow_attention
from dudx.network.modules import kind
from dudx.network.probes import difference, moves, rounding
from dudx.network.sandbox import unobserved


@dataclass(frozen=True)
class Mixing:
    """A module whose rows influence each other even where the rows that go in do not."""

    #: As in `model.named_modules()`; empty for the network's own code, and for a function.
    name: str
    type: str
    #: The largest change of a row that stayed while others moved, relative to the largest value.
    change: float


@dataclass(frozen=True)
class Call:
    """A call of a torch function in the network, or the return of a module, which has no function."""

    function: Any
    #: The innermost module it happened in, as in `named_modules()`.
    module: str
    #: As `Mixing.change`, of what it returned.
    change: float = 0.0

    @property
    def name(self) -> str:
        """The function as one writes it."""
        return resolve_name(self.function) or getattr(self.function, "__name__", str(self.function))


def mixing_modules(model: Model, rows: Tensor) -> list[Mixing]:
    """The innermost modules that mix samples, in the order in which they do."""
    largest: dict[str, float] = {}
    for call in mixing_calls(model, rows):
        largest[call.module] = max(call.change, largest.get(call.module, 0.0))
    kinds = {"": kind(model)} | {name: kind(module) for name, module in _named_modules(model).items()}
    return [Mixing(name, kinds[name], change) for name, change in largest.items()]


def mixing_calls(model: Model, rows: Tensor) -> list[Call]:
    """The calls that mix samples, in order: rows that stay change there when others move, and nowhere before."""
    rest = _Watch(model, torch.zeros(len(rows), dtype=torch.bool, device=rows.device))
    rest.run(rows)
    again = _Watch(model, rest.block, rest)
    again.run(rows)
    noise = again.of_rows | again.of_summaries  # what differs though nothing moved

    def changes(still_summaries: bool) -> tuple[dict[int, float], dict[int, float]]:
        of_rows: dict[int, float] = {}
        of_summaries: dict[int, float] = {}
        for moved, block in moves(rows):
            watch = _Watch(model, block.flatten(), rest, noise, still_summaries)
            watch.run(moved)
            for table, found in ((of_rows, watch.of_rows), (of_summaries, watch.of_summaries)):
                table.update({number: max(change, table.get(number, 0.0)) for number, change in found.items()})
        return of_rows, of_summaries

    found, summaries = changes(still_summaries=False)
    if summaries:
        # What condenses the batch has no rows to be blamed for; it is to blame if without it another call is not.
        without, _ = changes(still_summaries=True)
        if without.keys() != found.keys():
            in_rows = {rest.calls[number].module: change for number, change in sorted(found.items(), key=_change)}
            told = {number: in_rows.get(rest.calls[number].module, change) for number, change in summaries.items()}
            found = told | without
    calls = [(rest.calls[number], found[number]) for number in sorted(found)]
    return [Call(call.function, call.module, change) for call, change in calls]


def _change(item: tuple[int, float]) -> float:
    return item[1]


def relative_change(now: Tensor, still: Tensor, moved: Tensor) -> float:
    """The largest change outside the moved rows, relative to the largest value there is; 0 within rounding."""
    now, still = now.detach(), still.detach()
    if not now.is_floating_point() or not now.numel():
        return 0.0
    change = difference(now, still).masked_fill(moved, 0).amax()
    if bool(change <= rounding(still.reshape(-1, 1))):
        return 0.0
    relative = float(change / still.abs().masked_fill(~still.isfinite(), 0).amax())
    return math.inf if math.isnan(relative) else relative


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


class _Watch(TorchFunctionMode):
    """A pass that compares every call with its counterpart at rest, and puts rows that did not move back as they were.

    So each call finds them as they are at rest, whatever came before it, and is judged by what itself does.

    Args:
        model: the network.
        block: which rows move.
        rest: the pass in which none does; None for that pass itself.
        noise: how much calls change by themselves.
        still_summaries: put back results without rows, too.
    """

    def __init__(
        self,
        model: Model,
        block: Tensor,
        rest: _Watch | None = None,
        noise: dict[int, float] | None = None,
        still_summaries: bool = False,
    ):
        super().__init__()
        self.model, self.block, self.rest = model, block, rest
        self.noise, self.still_summaries = noise or {}, still_summaries
        self.modules, self.judging = [""], False
        self.calls: list[Call] = []
        self.given: list[Any] = []
        self.returned: list[Any] = []
        #: The largest change by the number of the call: of rows, and of results without rows.
        self.of_rows: dict[int, float] = {}
        self.of_summaries: dict[int, float] = {}

    def run(self, x: Tensor) -> None:
        """One pass, which leaves nothing behind."""
        with contextlib.ExitStack() as stack:
            for name, module in _named_modules(self.model).items():
                before, after = self._hooks(name)
                stack.callback(module.register_forward_pre_hook(before, with_kwargs=True).remove)
                stack.callback(module.register_forward_hook(after, always_call=True).remove)
            stack.enter_context(slow_attention())  # fused kernels pass over the modules inside a layer
            stack.enter_context(unobserved(self.model, x.device))
            stack.enter_context(self)
            checks.forward(self.model, x.clone())

    def _hooks(self, name: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
        """What goes into a module and comes out: a change that no function has shown, its caller's or its code made."""

        def before(module: nn.Module, args: Any, kwargs: Any) -> Any:
            given = self._judged(None, ((), {}), lambda: (args, kwargs))
            self.modules.append(name)
            return given

        def after(module: nn.Module, args: Any, output: Any) -> Any:
            try:
                return self._judged(None, ((), {}), lambda: output)
            finally:
                self.modules.pop()

        return before, after

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self.judging:  # in a hook
            return func(*args, **kwargs)
        return self._judged(func, (args, kwargs), lambda: func(*args, **kwargs))

    def _judged(self, function: Any, given: Any, call: Callable[[], Any]) -> Any:
        self.judging = True
        try:
            number, made = len(self.calls), Call(function, self.modules[-1])
            self.calls.append(made)
            if self.rest is None:
                self.given.append(_paired(_copied, given, given))
                result = call()
                self.returned.append(_paired(_copied, (result, given), (result, given)))
                return result
            if number >= len(self.rest.calls) or self.rest.calls[number] != made:
                return call()  # a network that does something else this time
            # By a summary that has changed, so that this call is not its origin; a module only passes it on.
            told = [] if function else [True]
            _paired(lambda now, still: self._told(told, now, still), given, self.rest.given[number])
            result = call()
            back, (args, _) = _paired(
                lambda now, still: self._put_back(number, bool(told), now, still),
                (result, given),  # which may have been written into
                self.rest.returned[number],
            )
            first = given[0][0] if given[0] else None
            if isinstance(first, Tensor) and (result is first or result is None):  # a function that writes into it
                if args[0] is not first:
                    with torch.no_grad():
                        first.copy_(args[0])
                return result
            return back
        finally:
            self.judging = False

    def _told(self, told: list[bool], now: Tensor, still: Tensor) -> Tensor:
        if self._moved(now) is None and not torch.equal(now, still):
            told.append(True)
        return now

    def _put_back(self, number: int, told: bool, now: Tensor, still: Tensor) -> Tensor:
        moved = self._moved(now)
        summary = moved is None
        moved = torch.zeros_like(now, dtype=torch.bool) if moved is None else moved
        if bool((difference(now, still) == 0).logical_or(moved).all()) if now.is_floating_point() else False:
            return now
        if not (summary and told):
            change, table = relative_change(now, still, moved), self.of_summaries if summary else self.of_rows
            if change > 10 * self.noise.get(number, 0.0):
                table[number] = max(change, table.get(number, 0.0))
        if summary and (told or not self.still_summaries):
            return now
        # The value is as it was, and the gradient, which a network may take in its forward, as it is.
        held = still + (now - now.detach()) if now.requires_grad else still
        return torch.where(moved, now, held)

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


def _copied(now: Tensor, _: Tensor) -> Tensor:
    return now.clone()


def _paired(function: Callable[[Tensor, Tensor], Tensor], now: Any, still: Any) -> Any:
    """The function of each tensor and the one in its place at rest; what has none like it there stays as it is."""
    if isinstance(now, Tensor) and isinstance(still, Tensor):
        alike = now.shape == still.shape and now.dtype == still.dtype and _readable(now)
        return function(now, still) if alike else now
    if isinstance(now, tuple | list) and type(still) is type(now) and len(still) == len(now):
        parts = [_paired(function, a, b) for a, b in zip(now, still, strict=True)]
        return type(now)(*parts) if hasattr(now, "_fields") else type(now)(parts)
    if type(now) is dict and type(still) is dict:
        return {key: _paired(function, value, still.get(key)) for key, value in now.items()}
    return now


def _readable(tensor: Tensor) -> bool:
    """Whether a tensor has values, as those inside torch.func.vmap have not."""
    try:
        tensor.data_ptr()
    except RuntimeError:
        return False
    return True
