"""Find the torch functions, and their modules, in which the samples of a batch influence each other."""

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

from dudx.backend.containers import mapped_beside
from dudx.backend.differentiable_kernels import SlowAttention
from dudx.network import model_checks
from dudx.network.model_checks import Model
from dudx.network.modules import type_name
from dudx.network.probe_rows import difference, perturbations, rounding_tolerance
from dudx.network.sandbox import sandboxed

#: Number of rows of a probe: a prime that is rarely the width of a layer, since the sample axis is found by its length.
ROWS = 13


@dataclass(frozen=True)
class MixingModule:
    """A module in which rows influence each other although its input rows do not.

    Example:
        >>> model = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.BatchNorm1d(4))
        >>> (layer,) = dudx.explain(model, torch.rand(32, 2)).modules
        >>> isinstance(layer, dudx.diagnose.MixingModule), layer.name
        (True, '1')
    """

    #: Name in `model.named_modules()`; empty for the network's own code and for a function.
    name: str
    type: str
    #: The largest change of a row that stayed while others moved, relative to the largest value.
    change: float


@dataclass(frozen=True)
class Call:
    """A call of a torch function in the network, or the return of a module (without a function)."""

    function: Any
    #: The innermost module of the call, as in `named_modules()`.
    module: str
    #: As `MixingModule.change`, for the result.
    change: float = 0.0

    @property
    def name(self) -> str:
        """Qualified name of the function."""
        return resolve_name(self.function) or getattr(self.function, "__name__", str(self.function))


def mixing_modules(model: Model, rows: Tensor) -> list[MixingModule]:
    """Return the innermost modules that mix samples, in order of execution."""
    largest: dict[str, float] = {}
    for call in mixing_calls(model, rows):
        largest[call.module] = max(call.change, largest.get(call.module, 0.0))
    kinds = {"": type_name(model)} | {name: type_name(module) for name, module in _named_modules(model).items()}
    return [MixingModule(name, kinds[name], change) for name, change in largest.items()]


def mixing_calls(model: Model, rows: Tensor) -> list[Call]:
    """Return the calls that mix samples, in order: those in which unmoved rows change although their inputs do not."""
    rest = _Watch(model, torch.zeros(len(rows), dtype=torch.bool, device=rows.device))
    rest.run(rows)
    again = _Watch(model, rest.block, rest)
    again.run(rows)
    noise = again.of_rows | again.of_summaries  # changes although nothing moved

    def largest(hold_summaries: bool) -> tuple[dict[int, float], dict[int, float]]:
        """Return the largest changes per call, of rows and of results without rows, which may be held fixed too."""
        tables: tuple[dict[int, float], dict[int, float]] = {}, {}
        for moved, block in perturbations(rows):
            watch = _Watch(model, block.flatten(), rest, hold_summaries)
            watch.run(moved)
            for table, found in zip(tables, (watch.of_rows, watch.of_summaries), strict=True):
                new = {n: max(change, table.get(n, 0.0)) for n, change in found.items()}
                table.update({n: change for n, change in new.items() if change > 10 * noise.get(n, 0.0)})
        return tables

    found, _ = largest(hold_summaries=False)
    without, summaries = largest(hold_summaries=True)
    if without.keys() != found.keys():
        # A summary of the batch has no rows; it is reported if without it another call would not mix.
        in_rows = {rest.calls[n].module: change for n, change in sorted(found.items(), key=lambda item: item[1])}
        found = {n: in_rows.get(rest.calls[n].module, change) for n, change in summaries.items()} | without
    return [Call(rest.calls[n].function, rest.calls[n].module, found[n]) for n in sorted(found)]


def relative_change(now: Tensor, still: Tensor, moved: Tensor) -> float:
    """Return the largest change outside the moved rows, relative to the largest value; 0 within rounding."""
    now, still = now.detach(), still.detach()
    if not now.is_floating_point() or not now.numel():
        return 0.0
    change = difference(now, still).masked_fill(moved, 0).amax()
    if bool(change <= rounding_tolerance(still.reshape(-1, 1))):
        return 0.0
    relative = float(change / still.abs().masked_fill(~still.isfinite(), 0).amax())
    return math.inf if math.isnan(relative) else relative


def _named_modules(model: Model) -> dict[str, nn.Module]:
    """Return modules by name, including those that a function uses; but no scripted ones, which take no hooks."""
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
    """A pass that compares every call with its counterpart at rest, and resets rows that did not move.

    Each call thus receives unmoved rows as they are at rest, and only its own effect on them is measured.

    Args:
        model: the network.
        block: mask of the rows that move.
        rest: the pass in which no row moves; None for that pass itself.
        hold_summaries: reset results without rows, too.
    """

    def __init__(self, model: Model, block: Tensor, rest: _Watch | None = None, hold_summaries: bool = False):
        super().__init__()
        self.model, self.block, self.rest, self.hold_summaries = model, block, rest, hold_summaries
        self.modules, self.judging = [""], False
        self.calls: list[Call] = []
        self.returned: list[Any] = []
        #: The largest change per call number: of rows, and of results without rows.
        self.of_rows: dict[int, float] = {}
        self.of_summaries: dict[int, float] = {}

    def run(self, x: Tensor) -> None:
        """Run one pass without side effects."""
        with contextlib.ExitStack() as stack:
            for name, module in _named_modules(self.model).items():
                before, after = self._hooks(name)
                stack.callback(module.register_forward_pre_hook(before, with_kwargs=True).remove)
                stack.callback(module.register_forward_hook(after, always_call=True).remove)
            stack.enter_context(SlowAttention())  # fused kernels pass over the modules inside a layer
            stack.enter_context(sandboxed(self.model))
            stack.enter_context(self)
            model_checks.forward(self.model, x.clone())

    def _hooks(self, name: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
        """Return hooks that compare a module's inputs and outputs, for changes made by its caller or its own code."""

        def before(module: nn.Module, args: Any, kwargs: Any) -> Any:
            given = self._judged(None, (), lambda: (args, kwargs))
            self.modules.append(name)
            return given

        def after(module: nn.Module, args: Any, output: Any) -> Any:
            try:
                return self._judged(None, (), lambda: output)
            finally:
                self.modules.pop()

        return before, after

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self.judging:  # in a hook
            return func(*args, **kwargs)
        return self._judged(func, args, lambda: func(*args, **kwargs))

    def _judged(self, function: Any, given: Any, call: Callable[[], Any]) -> Any:
        self.judging = True
        try:
            number, made = len(self.calls), Call(function, self.modules[-1])
            self.calls.append(made)
            result = call()
            after = (result, given)  # which may have been written into
            if self.rest is None:
                self.returned.append(_paired(lambda now, _: now.clone(), after, after))
            if self.rest is None or number >= len(self.rest.calls) or self.rest.calls[number] != made:
                return result  # the network makes other calls this time
            back, args = _paired(
                lambda now, still: self._put_back(number, now, still), after, self.rest.returned[number]
            )
            if args and isinstance(args[0], Tensor) and (result is given[0] or result is None):
                if args[0] is not given[0]:  # what was written into it
                    with torch.no_grad():
                        given[0].copy_(args[0])
                return result
            return back
        finally:
            self.judging = False

    def _put_back(self, number: int, now: Tensor, still: Tensor) -> Tensor:
        moved = self._moved(now)
        of_rows = moved is not None
        moved = torch.zeros_like(now, dtype=torch.bool) if moved is None else moved
        if now.is_floating_point() and bool((difference(now, still) == 0).logical_or(moved).all()):
            return now
        table, change = self.of_rows if of_rows else self.of_summaries, relative_change(now, still, moved)
        if change:
            table[number] = max(change, table.get(number, 0.0))
        if not of_rows and not self.hold_summaries:
            return now
        # Keep the gradient, since the network may differentiate in its forward.
        held = still + (now - now.detach()) if now.requires_grad else still
        return torch.where(moved, now, held)

    def _moved(self, value: Tensor) -> Tensor | None:
        """Return a mask of entries of moved rows, if an axis counts the rows or the first one blocks of them."""
        count, shape = len(self.block), value.shape
        if count in shape:
            axis, block = shape.index(count), self.block
        elif value.ndim and shape[0] and shape[0] % count == 0:
            axis, block = 0, self.block.repeat_interleave(shape[0] // count)
        else:
            return None
        return block.reshape([-1 if i == axis else 1 for i in range(value.ndim)])


def _paired(function: Callable[[Tensor, Tensor], Tensor], now: Any, still: Any) -> Any:
    """Apply a function to each tensor and its counterpart at rest; tensors without one are kept."""
    return mapped_beside(now, still, lambda a, b: function(a, b) if _alike(a, b) else a)


def _alike(now: Any, still: Any) -> bool:
    """Return True for two tensors of one kind whose values can be compared."""
    tensors = isinstance(now, Tensor) and isinstance(still, Tensor)
    return tensors and now.shape == still.shape and now.dtype == still.dtype and _readable(now)


def _readable(tensor: Tensor) -> bool:
    """Return True if the values of a tensor can be read, which is not so inside torch.func.vmap."""
    try:
        tensor.data_ptr()
    except RuntimeError:
        return False
    return True
