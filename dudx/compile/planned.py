"""A plan as one compiled graph: the network, its derivatives, and what is made of them; of all members of an ensemble."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor

from dudx.compile.graphs import Compiled, Key, shapes
from dudx.network.ensemble import Ensemble
from dudx.network.pointwise import unbound


def from_graph(
    compiled: Compiled,
    plan: Any,
    model: Any,
    x: Tensor,
    finish: Callable[[Any, Any, Tensor, tuple[Tensor, ...]], Any],
    way: Hashable = (),
    subject: Any = None,
    given: tuple[Tensor, ...] = (),
) -> Any:
    """What `finish(subject, derivatives, x, given)` makes of the derivatives that a plan computes.

    Args:
        compiled: where graphs are kept.
        plan: how the derivatives are computed, an engine's `Prepared`.
        model: the network, or an ensemble: what is returned then has a leading axis of members.
        x: the points.
        finish: the last step; what it closes over is what `way` stands for.
        way: by what else graphs are told apart.
        subject: what may change between calls, which torch looks at each time, such as an object with a user's function.
        given: tensors that come with the call.
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

    key = Key(plan.key, shapes(x, *held, *plan.tensors, *given), (way, torch.is_grad_enabled(), bind))
    return compiled(key, run, network, subject, held, x, plan.tensors, given)
