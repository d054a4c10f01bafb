"""Evaluation of a residual by a compiled graph of network, derivatives and function."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from dudx.backend.active_modes import vmap_active
from dudx.engines.interface import Prepared
from dudx.evaluate import prepared
from dudx.network.compiled_graph import CompiledGraphs
from dudx.network.compiled_plan import run_compiled
from dudx.network.ensemble import Ensemble
from dudx.residual.field_function import FieldFunction
from dudx.residual.recorded_request import RecordedRequest
from dudx.residual.residual_evaluation import RESULTS, ResidualCall, evaluate_eagerly


class CompiledEvaluation:
    """Compute calls by compiled graphs, and eagerly where the engine has no plan to compile."""

    def __init__(self, graphs: CompiledGraphs):
        self.graphs = graphs

    def __call__(self, function: FieldFunction, call: ResidualCall, request: RecordedRequest) -> Any:
        plan = self.plan(call, request)
        return evaluate_eagerly(function, call, request) if plan is None else self.run(plan, function, call, request)

    def plan(self, call: ResidualCall, request: RecordedRequest) -> Prepared | None:
        """The engine's plan of a request; None if it cannot be compiled."""
        if request.nonlocal_terms:
            self.graphs.give_up("integrals and fractional derivatives choose their rows at each call")
        # A plan for one member of an ensemble is one for all of them.
        network = call.model.kind if isinstance(call.model, Ensemble) else call.model
        compiles = not vmap_active() and self.graphs.can_compile(network)
        return prepared(network, call.x, request.for_engine, call.engine) if compiles else None

    def run(self, plan: Prepared, function: FieldFunction, call: ResidualCall, request: RecordedRequest) -> Any:
        """Compute a call by the graph of a plan."""
        names = tuple(call.data)

        def finish(function: FieldFunction, computed: Sequence[Tensor], x: Tensor, given: tuple[Tensor, ...]) -> Any:
            values = function.replayed(computed, request, x, dict(zip(names, given, strict=True)))
            return tuple(result(values) for result in RESULTS)

        given, key = tuple(call.data.values()), (request.places, request.shapes, names)
        results = run_compiled(self.graphs, plan, call.model, call.x, finish, key, function, given)
        return results[RESULTS.index(call.finish)]
