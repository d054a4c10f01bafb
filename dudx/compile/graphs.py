"""`torch.compile` for residuals: plan outside, compile the arithmetic down to one number, go on without if it fails."""

from __future__ import annotations

import re
import time
import types
import warnings
import weakref
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import torch
import torch._functorch.config as functorch_config
from torch import Tensor

from dudx.errors import first_line
from dudx.network.pointwise import Pointwise, itself

_COMPILER = ("torch._dynamo", "torch._inductor", "torch._functorch")


class CompilationWarning(UserWarning):
    """Compilation is not possible here; the computation goes on without it."""


class Compiled:
    """A function of (model, tensors…) compiled anew for each model and each key, with fixed shapes.

    The function may close over nothing that changes between calls with equal keys, except through a `self`: a user's
    own function may be in there, and read whatever it likes.
    """

    def __init__(self) -> None:
        self.graphs: weakref.WeakKeyDictionary[Any, dict[Hashable, Callable[..., Any]]] = weakref.WeakKeyDictionary()
        self.available = True
        #: How long the first calls took, in which compilation happens.
        self.seconds = 0.0

    def __call__(self, key: Hashable, function: Callable[..., Any], model: Any, *arguments: Any) -> Any:
        if not self.available:
            return function(model, *arguments)
        graphs = self.graphs.setdefault(model, {})
        if key in graphs:
            return graphs[key](model, *arguments)
        start = time.perf_counter()
        graph = torch.compile(
            _with_own_code(function, len(graphs)),
            dynamic=False,
            fullgraph=True,
            options={"guard_filter_fn": _only_what_may_change(function), **_faster_functions()},
        )
        try:
            # The backward graph is made now too, so that all of compilation happens, and is counted, here.
            with functorch_config.patch(force_non_lazy_backward_lowering=True):
                result = graph(model, *arguments)
        except Exception as error:
            if not _from_compiler(error):
                raise
            result = function(model, *arguments)  # a mistake in the function itself shows here
            self._give_up(f"{type(error).__name__}: {first_line(error)}")
            return result
        graphs[key] = graph
        self.seconds += time.perf_counter() - start
        return result

    def takes(self, model: Any) -> bool:
        """Whether it is worth a try; an isolated network may know that it cannot be compiled, and why."""
        reason = model.not_compiled if isinstance(model, Pointwise) else None
        if self.available and reason is not None:
            self._give_up(reason)
        return self.available

    def _give_up(self, reason: str) -> None:
        self.available = False
        warnings.warn(
            f"torch.compile is not possible here ({reason}); going on without it.", CompilationWarning, stacklevel=6
        )


def _with_own_code(function: Callable[..., Any], number: int) -> Callable[..., Any]:
    """The same function with a code object of its own: torch counts recompilations, up to a limit, by code object."""
    code = function.__code__.replace(co_name=f"{function.__name__}_{number}")
    return types.FunctionType(code, function.__globals__, code.co_name, function.__defaults__, function.__closure__)


def _only_what_may_change(function: Callable[..., Any]) -> Callable[[Sequence[Any]], list[bool]]:
    """A filter for what torch.compile checks at each call: what the key stands for, a long plan above all, is left out.

    In many variables the plan is long, and checking it number by number would show in the time of a slice.
    """
    fixed = set(function.__code__.co_freevars) - {"self"}

    def kept(guards: Sequence[Any]) -> list[bool]:
        return [re.split(r"\W", guard.name, maxsplit=1)[0] not in fixed for guard in guards]

    return kept


def _faster_functions() -> dict[str, Any]:
    """A pass over the graphs on their way to machine code, unless the user has one of their own."""
    # Here, since the compiler takes time to be imported, and most who import us compile nothing.
    import torch._inductor.config as inductor_config

    from dudx.compile.tanh import FastTanh

    return {} if inductor_config.post_grad_custom_post_pass else {"post_grad_custom_post_pass": FastTanh()}


def _from_compiler(error: BaseException) -> bool:
    """Whether the compiler failed, rather than what it was to compile."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    raised_in = trace.tb_frame.f_globals.get("__name__", "") if trace is not None else ""
    # Its assertions are of a built-in kind, and tell by the place where they are raised.
    return (isinstance(error, AssertionError) and raised_in.startswith(_COMPILER)) or any(
        kind.__module__.startswith(_COMPILER) for kind in type(error).__mro__
    )


def shapes(*tensors: Tensor) -> Hashable:
    """What fixed shapes depend on."""
    return tuple((tuple(t.shape), t.dtype, t.device, t.requires_grad) for t in tensors)


def unbound(model: Any) -> tuple[Any, tuple[Tensor, ...], Callable[..., Any]]:
    """A network apart from the tensors it holds for the moment, and how to put them together again."""
    return model.unbound() if isinstance(model, Pointwise) else (model, (), itself)
