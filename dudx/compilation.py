"""`torch.compile` for residuals: plan outside, compile the arithmetic down to one number, go on without if it fails."""

from __future__ import annotations

import time
import types
import warnings
import weakref
from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor


class CompilationWarning(UserWarning):
    """Compilation is not possible here; the computation goes on without it."""


class Compiled:
    """A function of (model, tensors…) compiled anew for each model and each key, with fixed shapes.

    The function may close over nothing that changes between calls with equal keys.
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
        graph = torch.compile(_with_own_code(function, len(graphs)), dynamic=False, fullgraph=True)
        try:
            result = graph(model, *arguments)
        except Exception as error:
            if not _from_compiler(error):
                raise
            result = function(model, *arguments)  # a mistake in the function itself shows here
            self.available = False
            reason = str(error).strip().splitlines()[0].rstrip(".")
            warnings.warn(
                f"torch.compile is not possible here ({type(error).__name__}: {reason}); going on without it.",
                CompilationWarning,
                stacklevel=5,
            )
            return result
        graphs[key] = graph
        self.seconds += time.perf_counter() - start
        return result


def _with_own_code(function: Callable[..., Any], number: int) -> Callable[..., Any]:
    """The same function with a code object of its own: torch counts recompilations, up to a limit, by code object."""
    code = function.__code__.replace(co_name=f"{function.__name__}_{number}")
    return types.FunctionType(code, function.__globals__, code.co_name, function.__defaults__, function.__closure__)


def _from_compiler(error: BaseException) -> bool:
    """Whether the compiler failed, rather than what it was to compile."""
    return any(
        kind.__module__.startswith(("torch._dynamo", "torch._inductor", "torch._functorch"))
        for kind in type(error).__mro__
    )


def shapes(*tensors: Tensor) -> Hashable:
    """What fixed shapes depend on."""
    return tuple((tuple(t.shape), t.dtype, t.device, t.requires_grad) for t in tensors)
