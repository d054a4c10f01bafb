"""`torch.compile` for residuals: plan outside, compile the arithmetic down to one number, go on without if it fails."""

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
from dudx.backend.open_sizes import Shapes, in_common, opened
from dudx.errors import CompilationWarning, first_line
from dudx.network.batch_bound import BatchBound

#: After how many graphs a person is told, and after how many there are no more, for one network and for all.
_WARN_AFTER, _MAX_PER_NETWORK, _MAX_GRAPHS = 5, 16, 64


@dataclass(frozen=True)
class GraphKey:
    """What a graph depends on besides the network: graphs with equal keys are the same."""

    #: What is computed, numbers that are multiplied with derivatives among it.
    plan: Hashable
    #: The shapes and formats of the tensors.
    shapes: Shapes
    #: In which way it is called.
    call_mode: Hashable = ()
    #: Whether sizes may change within a graph; its arguments' tensors are then those of `shapes`, in order.
    any_size: bool = False

    def differs(self, others: Sequence[GraphKey]) -> str:
        """Why this is another graph than those there are, for a person."""
        if all(other.plan != self.plan for other in others):
            return (
                "the residual asks for other derivatives or multiplies them with another number at each call; give "
                "such a number as a tensor, which is data"
            )
        if all(other.shapes != self.shapes for other in others):
            return "the shape of the points or the data changes; keep batches of one shape"
        return "it is called in one way and in another, with gradients and without or for losses and values"

    def together_with(self, other: Hashable) -> GraphKey | None:
        """The key of a graph that takes this call, another one, and all between which the same sizes change."""
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


#: Graphs of one network, by what of it is called and what the graph depends on.
Graphs = dict[tuple[object, Hashable], Callable[..., Any]]


class CompiledGraphs:
    """Functions of (model, tensors…), compiled anew for each model and each key.

    Shapes are fixed in the first graph; calls that differ from it in the number of rows share a second one.

    What a function closes over is what its key stands for: it is taken as it was at the first call, and never looked at
    again. What may change between calls with equal keys is an argument, such as an object that holds a user's own
    function, which reads whatever it likes.
    """

    def __init__(self) -> None:
        self.graphs: weakref.WeakKeyDictionary[Any, Graphs] = weakref.WeakKeyDictionary()
        self.available = True
        #: Whether one graph takes batches of many sizes.
        self.sizes_may_change = True
        #: How many graphs were made, also of networks that are no more.
        self.graph_count = 0
        #: How long the first calls took, in which compilation happens.
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
            # Told of open sizes each time: where torch compiles again by itself, it else does so for each size.
            return self._again(graphs[of_it, shared], function, model, *opened(arguments, shared.shapes))
        if len(graphs) >= _MAX_PER_NETWORK or self.graph_count >= _MAX_GRAPHS:
            return function(model, *arguments)
        if shared is not None:
            try:
                return self._first(graphs, (of_it, shared), function, model, *opened(arguments, shared.shapes))
            except Exception as error:
                if not from_compiler(error):
                    raise
                self.sizes_may_change = False  # this can be compiled for one size at a time only
        self._warn_of_recompilation(key, [other for _, other in graphs])
        try:
            return self._first(graphs, (of_it, key), function, model, *arguments)
        except Exception as error:
            if not from_compiler(error):
                raise
            result = function(model, *arguments)  # a mistake in the function itself shows here
            self.give_up(f"{type(error).__name__}: {first_line(error)}")
            return result

    def _shared(self, graphs: Graphs, of_it: object, key: Hashable) -> GraphKey | None:
        """The key of a graph that these sizes share with those of another call."""
        if self.sizes_may_change and isinstance(key, GraphKey) and key.any_size:
            for of_other, other in graphs:
                together = key.together_with(other) if of_other is of_it else None
                if together is not None:
                    return together
        return None

    def _first(self, graphs: Graphs, place: tuple[object, Hashable], function: Callable[..., Any], *given: Any) -> Any:
        """The first call of a graph, in which it is made."""
        self.graph_count += 1
        start = time.perf_counter()
        on_cpu = all(tensor.is_cpu for tensor in given if isinstance(tensor, Tensor))
        graph = _compile(function, len(graphs), on_cpu)
        with (
            guarded_hooks(),
            compile_backward_early(),
            reversed_matmul(),
        ):
            result = graph(*given)
        graphs[place] = graph
        self.seconds += time.perf_counter() - start
        return result

    def _again(self, graph: Callable[..., Any], function: Callable[..., Any], model: Any, *arguments: Any) -> Any:
        traced, start = graphs_traced(), time.perf_counter()
        try:
            with guarded_hooks():
                result = graph(model, *arguments)
            if graphs_traced() > traced:  # as where a layer of an open size gets too large for the way it is computed
                self.graph_count += 1
                self.seconds += time.perf_counter() - start
            return result
        except Exception as error:  # something has changed that is compiled in, and it is compiled again
            if not from_compiler(error):
                raise
            return function(model, *arguments)  # what went wrong there shows here, under its own name

    def __reduce__(self) -> tuple[type[CompiledGraphs], tuple[()]]:
        return CompiledGraphs, ()  # a copy, in this process or another, makes its own graphs

    def can_compile(self, model: Any) -> bool:
        """Whether it is worth a try; an isolated network may know that it cannot be compiled, and why."""
        reason = model.not_compiled if isinstance(model, BatchBound) else None
        if self.available and reason is not None:
            self.give_up(reason)
        return self.available

    def _warn_of_recompilation(self, key: Hashable, others: list[Hashable]) -> None:
        """Say once why it is compiled again and again."""
        if self.graph_count + 1 == _WARN_AFTER and isinstance(key, GraphKey):
            warnings.warn(
                f"This residual is compiled for the {_WARN_AFTER}th time, as {_reason(key, others)}. After "
                f"{_MAX_PER_NETWORK} graphs it goes on without compilation.",
                CompilationWarning,
                stacklevel=6,
            )

    def give_up(self, reason: str) -> None:
        """Go on without compilation, and say so once."""
        if not self.available:
            return
        self.available = False
        warnings.warn(
            f"torch.compile is not possible here ({reason}); going on without it.", CompilationWarning, stacklevel=6
        )


def graph_anchor(model: Any) -> tuple[Any, object]:
    """What a graph is kept with, and what of it: functions and methods are made anew wherever they are written.

    Their code and their object stay. What else a function refers to is compared by torch at each call.
    """
    if isinstance(model, types.MethodType):
        return model.__self__, model.__func__
    return (model.__code__, None) if isinstance(model, types.FunctionType) else (model, None)


def _compile(function: Callable[..., Any], number: int, on_cpu: bool) -> Callable[..., Any]:
    """The function compiled, checking its arguments at each call and not what it closes over."""
    # Here, since the tools for graphs take time to be imported.
    from dudx.backend.graph_rewrites import faster_functions

    def run(*arguments: Any) -> Any:
        return function(*arguments)

    # Torch keeps what it has compiled with the code, tells graphs apart by their checks alone, and takes no more than a
    # few graphs for one code: as the checks of the plan are left out, each graph needs code of its own.
    # (`isolate_recompiles=True` says so in newer versions, up to 256 graphs in the life of a process.)
    run.__code__ = run.__code__.replace(co_name=f"{function.__name__}_{number}")
    options = {"guard_filter_fn": _guards_of_arguments, **faster_functions(), **(as_one_program() if on_cpu else {})}
    return torch.compile(run, dynamic=False, fullgraph=True, options=options)


def _guards_of_arguments(checks: Sequence[Any]) -> list[bool]:
    """Which of torch's checks to keep: in many variables a plan is long, and it would be compared number by number."""
    return [not check.name.startswith("function") for check in checks]
