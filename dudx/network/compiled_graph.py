"""Cache of graphs made by `torch.compile`; if compilation fails, computation goes on without it."""

from __future__ import annotations

import time
import types
import warnings
import weakref
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dudx.backend.compiler import (
    as_one_program,
    compile_backward_early,
    from_compiler,
    graphs_traced,
    guarded_hooks,
    reversed_matmul,
)
from dudx.backend.forward_mode import close_leaked_level
from dudx.backend.open_sizes import Shapes, in_common, opened
from dudx.errors import CompilationWarning, first_line
from dudx.network.batch_bound import BatchBound

#: Number of graphs after which a warning is given; maximal number of graphs per network, and for all networks.
_WARN_AFTER, _MAX_PER_NETWORK, _MAX_GRAPHS = 5, 16, 64


@dataclass(frozen=True)
class GraphKey:
    """Everything a graph depends on besides the network: calls with equal keys share a graph."""

    #: The computation, including constant coefficients of derivatives.
    plan: Hashable
    #: The shapes and formats of the tensors.
    shapes: Shapes
    #: Further properties of the call, such as gradients on or off.
    call_mode: Hashable = ()
    #: True if sizes may change within a graph; its arguments' tensors are then those of `shapes`, in order.
    any_size: bool = False

    def differs(self, others: Sequence[GraphKey]) -> str:
        """Explain why no existing graph can be used, for the warning."""
        if all(other.plan != self.plan for other in others):
            return (
                "the residual asks for other derivatives or multiplies them with another number at each call; give "
                "such a number as a tensor, which is data"
            )
        if all(other.shapes != self.shapes for other in others):
            return "the shape of the points or the data changes; keep batches of one shape"
        return "it is called in one way and in another, with gradients and without or for losses and values"

    def together_with(self, other: Hashable) -> GraphKey | None:
        """Return the key of a graph for this call, another one, and all that differ from them in the same sizes."""
        if (
            not self.any_size
            or not isinstance(other, GraphKey)
            or (self.plan, self.call_mode) != (other.plan, other.call_mode)
        ):
            return None
        common = in_common(self.shapes, other.shapes)
        return None if common is None else GraphKey(self.plan, common, self.call_mode, any_size=True)


def _reason(key: GraphKey, others: Sequence[Hashable]) -> str:
    if not others:
        return "the network is another object at each call; make it once, outside of the loop"
    return key.differs([other for other in others if isinstance(other, GraphKey)])


#: Graphs of one network, by the method that is called and the key.
Graphs = dict[tuple[object, Hashable], Callable[..., Any]]


class CompiledGraphs:
    """Functions of (model, tensors…), compiled once per model and key.

    The first graph has fixed shapes; calls with other numbers of rows share a second one.

    Objects that a function closes over are fixed at the first call and not guarded, so the key must identify them.
    Anything that may change between calls with equal keys must be an argument, such as an object that holds a user's
    function.
    """

    def __init__(self) -> None:
        self.graphs: weakref.WeakKeyDictionary[Any, Graphs] = weakref.WeakKeyDictionary()
        self.available = True
        #: True if one graph can accept batches of many sizes.
        self.sizes_may_change = True
        #: Number of graphs compiled so far, also for networks that no longer exist.
        self.graph_count = 0
        #: Wall time of the first calls, which compile.
        self.seconds = 0.0

    def __call__(self, key: Hashable, function: Callable[..., Any], model: Any, *arguments: Any) -> Any:
        if not self.available:
            return function(model, *arguments)
        anchor, of_it = graph_anchor(model)
        graphs = self.graphs.setdefault(anchor, {})
        known = graphs.get((of_it, key))
        if known is not None:
            return self._again(known, function, model, *arguments)
        shared = self._shared(graphs, of_it, key)
        if shared is not None and (of_it, shared) in graphs:
            # Sizes are marked as open at each call; otherwise torch, if it recompiles, does so for each size.
            return self._again(graphs[of_it, shared], function, model, *opened(arguments, shared.shapes))
        if len(graphs) >= _MAX_PER_NETWORK or self.graph_count >= _MAX_GRAPHS:
            return function(model, *arguments)
        if shared is not None:
            try:
                return self._first(graphs, (of_it, shared), function, model, *opened(arguments, shared.shapes))
            except Exception as error:
                if not from_compiler(error):
                    raise
                self.sizes_may_change = False  # can be compiled for fixed sizes only
        self._warn_of_recompilation(key, [other for _, other in graphs])
        try:
            return self._first(graphs, (of_it, key), function, model, *arguments)
        except Exception as error:
            if not from_compiler(error):
                raise
            result = function(model, *arguments)  # raises errors of the function itself
            self.give_up(f"{type(error).__name__}: {first_line(error)}")
            return result

    def _shared(self, graphs: Graphs, of_it: object, key: Hashable) -> GraphKey | None:
        """Return the key of a graph that these sizes can share with another call."""
        if self.sizes_may_change and isinstance(key, GraphKey) and key.any_size:
            for of_other, other in graphs:
                together = key.together_with(other) if of_other is of_it else None
                if together is not None:
                    return together
        return None

    def _first(self, graphs: Graphs, place: tuple[object, Hashable], function: Callable[..., Any], *given: Any) -> Any:
        """Compile a graph in its first call."""
        self.graph_count += 1
        start = time.perf_counter()
        on_cpu = all(tensor.is_cpu for tensor in given if isinstance(tensor, Tensor))
        graph = _compile(function, len(graphs), on_cpu)
        try:
            with guarded_hooks(), compile_backward_early(), reversed_matmul():
                result = graph(*given)
        except Exception:
            close_leaked_level()
            raise
        graphs[place] = graph
        self.seconds += time.perf_counter() - start
        return result

    def _again(self, graph: Callable[..., Any], function: Callable[..., Any], model: Any, *arguments: Any) -> Any:
        traced, start = graphs_traced(), time.perf_counter()
        try:
            with guarded_hooks():
                result = graph(model, *arguments)
            if graphs_traced() > traced:  # torch has recompiled, for example for a larger layer of an open size
                self.graph_count += 1
                self.seconds += time.perf_counter() - start
            return result
        except Exception as error:  # a guarded object has changed and recompilation failed
            close_leaked_level()
            if not from_compiler(error):
                raise
            return function(model, *arguments)  # raises errors of the function itself

    def __reduce__(self) -> tuple[type[CompiledGraphs], tuple[()]]:
        return CompiledGraphs, ()  # a copy compiles its own graphs

    def can_compile(self, model: Any) -> bool:
        """Return True if compilation may succeed; give up if the model states that it cannot be compiled."""
        reason = model.not_compiled if isinstance(model, BatchBound) else None
        if self.available and reason is not None:
            self.give_up(reason)
        return self.available

    def _warn_of_recompilation(self, key: Hashable, others: list[Hashable]) -> None:
        """Warn once about repeated compilation, with the reason."""
        if self.graph_count + 1 == _WARN_AFTER and isinstance(key, GraphKey):
            warnings.warn(
                f"This residual is compiled for the {_WARN_AFTER}th time, as {_reason(key, others)}. After "
                f"{_MAX_PER_NETWORK} graphs it goes on without compilation.",
                CompilationWarning,
                stacklevel=6,
            )

    def give_up(self, reason: str) -> None:
        """Disable compilation and warn once."""
        if not self.available:
            return
        self.available = False
        warnings.warn(
            f"torch.compile is not possible here ({reason}); going on without it.", CompilationWarning, stacklevel=6
        )


def graph_anchor(model: Any) -> tuple[Any, object]:
    """Return the object that owns a model's graphs, and which of its methods is called.

    Function and method objects are created at each evaluation of their definition; their code and owner persist. Other
    objects that a function refers to are guarded by torch at each call.
    """
    if isinstance(model, types.MethodType):
        return model.__self__, model.__func__
    return (model.__code__, None) if isinstance(model, types.FunctionType) else (model, None)


def _compile(function: Callable[..., Any], number: int, on_cpu: bool) -> Callable[..., Any]:
    """Compile a function with guards for its arguments, but none for what it closes over."""
    # Imported here, since it takes time.
    from dudx.backend.graph_rewrites import faster_functions

    def run(*arguments: Any) -> Any:
        return function(*arguments)

    # Torch stores graphs with the code object, distinguishes them by guards and limits their number per code object.
    # Since guards of the plan are left out, each graph needs its own code object. (Newer versions of torch have
    # `isolate_recompiles=True`, with up to 256 graphs per process.)
    run.__code__ = run.__code__.replace(co_name=f"{function.__name__}_{number}")
    options = {"guard_filter_fn": _guards_of_arguments, **faster_functions(), **(as_one_program() if on_cpu else {})}
    return torch.compile(run, dynamic=False, fullgraph=True, options=options)


def _guards_of_arguments(checks: Sequence[Any]) -> list[bool]:
    """Select the guards to keep: those of a plan in many variables would be many, one per number."""
    return [not check.name.startswith("function") for check in checks]
