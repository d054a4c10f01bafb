"""Settings, counters and errors of `torch.compile`.

Nothing of the compiler is imported before it is used: importing it takes seconds, and most users compile nothing.
"""

from __future__ import annotations

import contextlib
import importlib
import operator
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import torch

#: Packages whose exceptions are errors of the compiler itself. They have no common base class that separates them from
#: errors in the compiled function. With other package names a failing compiler stops the computation.
_COMPILER_PACKAGES = ("torch._dynamo", "torch._inductor", "torch._functorch", "torch.fx.experimental")


def from_compiler(error: BaseException) -> bool:
    """Return True if the compiler failed, False if the compiled function raised the error."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    raised_in = trace.tb_frame.f_globals.get("__name__", "") if trace is not None else ""
    # Assertions have a built-in class, so the module that raised them decides.
    return (isinstance(error, AssertionError) and raised_in.startswith(_COMPILER_PACKAGES)) or any(
        kind.__module__.startswith(_COMPILER_PACKAGES) for kind in type(error).__mro__
    )


def import_compiler() -> None:
    """Import `torch._dynamo` before a process forks: each child saves seconds at its first optimizer step."""
    with contextlib.suppress(ImportError):
        importlib.import_module("torch._dynamo")


def forget_compiled_code() -> None:
    """Reset the compiler, so that a run's numbers do not depend on the shapes that earlier runs compiled for."""
    torch._dynamo.reset()


def graphs_traced() -> int:
    """Return how many graphs this process has traced; an increase during a call means that it was compiled again.

    Without torch's counter, recompilations that torch decides on are not counted.
    """
    counters: Any = getattr(importlib.import_module("torch._dynamo.utils"), "counters", {})
    return counters["stats"]["unique_graphs"] if "stats" in counters else 0


def compile_backward_early() -> AbstractContextManager[Any]:
    """Compile the backward graph together with the forward graph, so that the first call includes all compilation.

    Without this setting the first backward pass compiles, and `compile_seconds` counts only the forward half.
    """
    import torch._functorch.config as settings

    name = "force_non_lazy_backward_lowering"
    return settings.patch({name: True}) if hasattr(settings, name) else contextlib.nullcontext()


@contextlib.contextmanager
def reversed_matmul() -> Iterator[None]:
    """Let the compiler distinguish `x @ weight` from `weight @ x` where x is a jet: it knows no reflected `@`.

    Without it both arrive as `weight.matmul(x)`, and only the shapes can distinguish them.
    """
    builtins: Any = importlib.import_module("torch._dynamo.variables.builtin")
    reflected: dict[Any, Any] | None = getattr(builtins, "BUILTIN_TO_TENSOR_RFN_MAP", None)
    if reflected is None or operator.matmul in reflected:
        yield
        return
    reflected[operator.matmul] = torch.Tensor.__rmatmul__
    try:
        yield
    finally:
        del reflected[operator.matmul]


@contextlib.contextmanager
def guarded_hooks() -> Iterator[None]:
    """Let compiled graphs notice hooks that a layer gets later. Without it, hooks must exist before the first call."""
    settings: Any = importlib.import_module("torch._dynamo.config")
    name = "skip_nnmodule_hook_guards"
    skipped = getattr(settings, name, False)
    if not skipped:
        yield
        return
    setattr(settings, name, False)
    try:
        yield
    finally:
        setattr(settings, name, skipped)


def as_one_program() -> dict[str, Any]:
    """Return options for `torch.compile` that put all loops of a graph into one C++ program.

    By default each loop is a program of its own, and most of a first compilation is spent on reading headers. Without
    this option compilation takes longer.
    """
    import torch._inductor.config as settings

    return {"cpp_wrapper": True} if hasattr(settings, "cpp_wrapper") else {}
