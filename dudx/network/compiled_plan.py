"""Run an engine's plan, and what follows it, as one compiled graph."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor

from dudx.backend.open_sizes import shapes
from dudx.network.batch_bound import unbound
from dudx.network.compiled_graph import CompiledGraphs, GraphKey, graph_anchor
from dudx.network.ensemble import Ensemble


def run_compiled(
    compiled: CompiledGraphs,
    plan: Any,
    model: Any,
    x: Tensor,
    finish: Callable[[Any, Any, Tensor, tuple[Tensor, ...]], Any],
    way: Hashable = (),
    subject: Any = None,
    given: tuple[Tensor, ...] = (),
) -> Any:
    """Compute derivatives by a plan and return `finish(subject, derivatives, x, given)`, compiled.

    Args:
        compiled: cache of graphs.
        plan: an engine's `Prepared`, which computes the derivatives.
        model: the network or an ensemble; results of an ensemble have a leading axis of members.
        x: the points.
        finish: the last step; `way` must identify everything it closes over.
        way: further key of the graph.
        subject: object that may change between calls, such as one with a user's function; torch guards it.
        given: tensors of this call.
    """
    network, held, bind = unbound(model)

    def run(
        network: Any,
        subject: Any,
        held: tuple[Tensor, ...],
        x: Tensor,
        planned: tuple[Tensor, ...],
        given: tuple[Tensor, ...],
    ) -> Any:
        def of(network: Any) -> Any:
            return finish(subject, plan.run(bind(network, *held), x, planned), x, given)

        return network.map(of) if isinstance(network, Ensemble) else of(network)

    # Models that hold tensors depend on their number of rows besides the shapes.
    tensors = shapes(x, *held, *plan.tensors, *given)
    key = GraphKey(plan.key, tensors, (way, torch.is_grad_enabled(), bind), any_size=not held)
    return compiled(key, run, network, subject, held, x, plan.tensors, given)


_graphs_by_network: weakref.WeakKeyDictionary[Any, CompiledGraphs] = weakref.WeakKeyDictionary()


def graphs_for(model: Any) -> CompiledGraphs:
    """Cache of a network's graphs that belong to no residual; it lives as long as the network."""
    anchor = graph_anchor(unbound(model)[0])[0]
    return _graphs_by_network.setdefault(anchor, CompiledGraphs())
