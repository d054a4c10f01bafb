"""Evaluation of a residual for an ensemble."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor

from dudx.engines.interface import refuse_unset
from dudx.evaluate import check_members
from dudx.residual.compilation import CompiledEvaluation
from dudx.residual.field_function import FieldFunction
from dudx.residual.recorded_request import RecordedRequest
from dudx.residual.residual_evaluation import ResidualCall, evaluate_eagerly

#: From a model, points and data to a network of the points alone.
Extension = Callable[[Any, Tensor, Mapping[str, Tensor]], Any]


class EnsembleEvaluation:
    """Compute calls whose model is an ensemble; results have a leading axis of members.

    Args:
        extensions: applied to each member, in order.
        compiled: compiled evaluation, if the residual is compiled.
    """

    def __init__(self, extensions: Sequence[Extension], compiled: CompiledEvaluation | None):
        self._extensions, self._compiled = extensions, compiled

    def __call__(self, function: FieldFunction, call: ResidualCall, request: RecordedRequest) -> Any:
        refuse_unset(call.engine, request.for_engine)
        check_members(call.model, call.x, request.for_engine, call.engine, lambda m: self._extended(m, call))
        if self._compiled is not None and not self._extensions:
            plan = self._compiled.plan(call, request)
            if plan is not None:
                return self._compiled.run(plan, function, call, request)

        def of_member(member: Any) -> Any:
            return evaluate_eagerly(function, call._replace(model=self._extended(member, call)), request)

        return call.model.map(of_member)

    def _extended(self, member: Any, call: ResidualCall) -> Any:
        for extension in self._extensions:
            member = extension(member, call.x, call.data)
        return member
