"""A plan as one compiled graph: a network or an ensemble, its derivatives, and what is made of them."""

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
    axes: tuple[int | None, ...] | None = None,
) -> Any:
    """What `finish(subject, derivatives, x, given)` makes of the derivatives that a plan computes.

    Args:
        compiled: where graphs are kept.
        plan: how the derivatives are computed, an engine's `Prepared`.
        model: the network, or an ensemble: what is returned then has a leading axis of members.
        x: the points.
        finish: the last step; what it closes over is what `way` stands for.
        way: by what else graphs are told apart.
        subject: what may change between calls, such as an object with a user's function: torch looks at it each time.
        given: tensors that come with the call.
        axes: where the members of an ensemble have points of their own, of each of the plan's tensors the axis of
            members; points and `given` have it in front.
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
        def of(
            network: Any, x: Tensor = x, planned: tuple[Tensor, ...] = planned, given: tuple[Tensor, ...] = given
        ) -> Any:
            return finish(subject, plan.run(bind(network, *held), x, planned), x, given)

        if axes is not None:
            return network.map(of, x, planned, given, axes=(0, axes, 0))
        return network.map(of) if isinstance(network, Ensemble) else of(network)

    # What holds tensors knows their number besides their shapes.
    tensors = shapes(x, *held, *plan.tensors, *given)
    key = GraphKey(plan.key, tensors, (way, torch.is_grad_enabled(), bind, axes), any_size=not held)
    return compiled(key, run, network, subject, held, x, plan.tensors, given)


_graphs_by_network: weakref.WeakKeyDictionary[Any, CompiledGraphs] = weakref.WeakKeyDictionary()


def graphs_for(model: Any) -> CompiledGraphs:
    """Where the graphs of a network are kept that belong to nothing else; they live as long as it does."""
    anchor = graph_anchor(unbound(model)[0])[0]
    return _graphs_by_network.setdefault(anchor, CompiledGraphs())
