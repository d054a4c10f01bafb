"""Subclasses of `torch.autograd.Function` on jets.

A jet is not a tensor, so torch would run the forward pass of such a function on it, without a graph, and never use the
gradient that the function defines. While networks run on jets, `apply` is replaced.
"""

from __future__ import annotations

import threading
from typing import Any

from torch.utils.checkpoint import CheckpointFunction

from dudx.backend.torch_classes import FunctionBase
from dudx.engines.taylor.inplace import shadow_of
from dudx.engines.taylor.jet import Jet
from dudx.engines.taylor.torch_derivatives import through


class _CustomFunctions:
    """Context in which `torch.autograd.Function.apply` accepts jets; reentrant, for several threads."""

    def __init__(self) -> None:
        self._running, self._lock = 0, threading.Lock()

    def __enter__(self) -> None:
        with self._lock:
            if not self._running:
                FunctionBase.apply = classmethod(_apply)
            self._running += 1

    def __exit__(self, *exception: object) -> None:
        with self._lock:
            self._running -= 1
            if not self._running:
                del FunctionBase.apply


custom_functions = _CustomFunctions()


def _apply(function: Any, *args: Any, **kwargs: Any) -> Any:
    args = tuple(shadow_of(argument) for argument in args)
    if not any(isinstance(argument, Jet) for argument in args):
        return super(FunctionBase, function).apply(*args, **kwargs)
    if function is CheckpointFunction:  # recomputation saves memory in a backward pass, which jets do not have
        run, _, *given = args
        return run(*given)
    hint = f"Taylor uses the gradient that {function.__qualname__} defines: exact, but slower than a rule would be."
    return through(function.apply, args, kwargs, hint, key=function, gradient=True)
