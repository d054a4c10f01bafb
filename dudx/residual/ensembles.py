"""Evaluation of a residual for an ensemble, whose members share the points or have points of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from dudx.engines.interface import Engine, Prepared, refuse_unset
from dudx.errors import InputError
from dudx.evaluate import check_members, derivatives, prepared
from dudx.network.ensemble import Ensemble
from dudx.residual.compilation import CompiledEvaluation
from dudx.residual.field_function import FieldFunction
from dudx.residual.recorded_request import RecordedRequest
from dudx.residual.request_cache import Arguments, RequestCache
from dudx.residual.residual_evaluation import ResidualCall, evaluate_eagerly

#: From the points and the data of a call to the same after a check.
Check = Callable[[Tensor, Mapping[str, Tensor]], Arguments]
#: From a model, points and data to a network of the points alone.
Extension = Callable[[Any, Tensor, Mapping[str, Tensor]], Any]


class EnsembleEvaluation:
    """Compute calls whose model is an ensemble; results have a leading axis of members.

    Args:
        function: the residual's function.
        requests: its requests.
        extensions: applied to each member, in order.
        compiled: compiled evaluation, if the residual is compiled.
    """

    def __init__(
        self,
        function: FieldFunction,
        requests: RequestCache,
        extensions: Sequence[Extension],
        compiled: CompiledEvaluation | None,
    ):
        self._function, self._requests = function, requests
        self._extensions, self._compiled = extensions, compiled

    def __call__(self, call: ResidualCall, check: Check) -> Any:
        if isinstance(call.x, Tensor) and call.x.ndim == 3:
            return self._own_points(call, check)
        check(call.x, call.data)
        return self._requests.computed([(call.x, call.data)], lambda requests: self._shared_points(call, requests[0]))

    def _extended(self, member: Any, call: ResidualCall) -> Any:
        for extension in self._extensions:
            member = extension(member, call.x, call.data)
        return member

    # -- the same points for all members --------------------------------------------------------------------------

    def _shared_points(self, call: ResidualCall, request: RecordedRequest) -> Any:
        refuse_unset(call.engine, request.for_engine)
        check_members(call.model, call.x, request.for_engine, call.engine, lambda m: self._extended(m, call))
        if self._compiled is not None and not self._extensions:
            plan = self._compiled.plan(call, request)
            if plan is not None:
                return self._compiled.run(plan, self._function, call, request)

        def of_member(member: Any) -> Any:
            return evaluate_eagerly(self._function, call._replace(model=self._extended(member, call)), request)

        return call.model.map(of_member)

    # -- points, data and perhaps engines of their own ------------------------------------------------------------

    def _own_points(self, call: ResidualCall, check: Check) -> Any:
        if self._extensions:
            raise InputError("Members with points of their own are networks alone, without data or other networks.")
        members = _members(call)
        for x, data in members:
            check(x, data)
        engines = _engines(call.model, call.engine)

        def compute(requests: list[RecordedRequest]) -> Any:
            return self._of_members(call, members, engines, requests)

        return self._requests.computed(members, compute)

    def _of_members(
        self,
        call: ResidualCall,
        members: Sequence[Arguments],
        engines: Sequence[Engine],
        requests: Sequence[RecordedRequest],
    ) -> Any:
        """Compute all members by one plan in one pass, or one by one where their plans differ.

        Plans differ, for example, where the steps for two orders are equal for one member only.
        """
        if any(request.nonlocal_terms for request in requests):
            raise InputError(
                "Members with points of their own are not known to integrals, fractional and upwind derivatives; give "
                "all members the same points, or compute them one by one."
            )
        ensemble, request = call.model, requests[0]
        check_members(ensemble, [x for x, _ in members], request.for_engine, engines)
        found = [
            prepared(ensemble.kind, x, asked.for_engine, engine)
            for (x, _), asked, engine in zip(members, requests, engines, strict=True)
        ]
        plans = [plan for plan in found if plan is not None]
        if len(plans) < len(found):
            return self._without_plans(call, members, engines, requests)
        layouts = {(plan.key, asked.places, asked.shapes) for plan, asked in zip(plans, requests, strict=True)}
        if len(layouts) > 1 or not request.repeatable:
            results = [
                self._finished(call, plan.run(ensemble.member(number), x, plan.tensors), asked, x, data)
                for number, (plan, asked, (x, data)) in enumerate(zip(plans, requests, members, strict=True))
            ]
            return _stacked(results)
        plan, axes = _joint(plans)
        if self._compiled is not None and self._compiled.takes(ensemble.kind):
            return self._compiled.run(plan, self._function, call, request, axes)

        def of_member(member: Any, x: Tensor, planned: tuple[Tensor, ...], data: dict[str, Tensor]) -> Any:
            return self._finished(call, plan.run(member, x, planned), request.with_data(data, x), x, data)

        return ensemble.map(of_member, call.x, plan.tensors, dict(call.data), axes=(0, axes, 0))

    def _without_plans(
        self,
        call: ResidualCall,
        members: Sequence[Arguments],
        engines: Sequence[Engine],
        requests: Sequence[RecordedRequest],
    ) -> Any:
        engine, request = engines[0], requests[0]
        if any(other != engine for other in engines) or not request.repeatable:
            raise InputError(
                f"{type(engine).__name__} makes no plan that members could share, so they have one engine, and "
                "directions that are data; Taylor, FD, EFD and SFD make one."
            )

        def of_member(member: Any, x: Tensor, data: dict[str, Tensor]) -> Any:
            asked = request.with_data(data, x)
            return self._finished(call, derivatives(member, x, asked.for_engine, engine), asked, x, data)

        return call.model.map(of_member, call.x, dict(call.data), axes=(0, 0))

    def _finished(
        self,
        call: ResidualCall,
        computed: Sequence[Tensor],
        request: RecordedRequest,
        x: Tensor,
        data: Mapping[str, Tensor],
    ) -> Any:
        return call.finish(self._function.replayed(computed, request, x, data))


def _members(call: ResidualCall) -> list[Arguments]:
    """The points and data of each member, from (M, B, …)."""
    ensemble: Ensemble = call.model
    for name, values in {"points": call.x, **call.data}.items():
        if len(values) != ensemble.count or values.ndim < 3 or values.shape[1] != call.x.shape[1]:
            raise InputError(
                f"Where members have points of their own, points and data have shape ({ensemble.count}, B, …), one "
                f"batch a member; the {name} have shape {tuple(values.shape)}."
            )
    return [(call.x[m], {name: values[m] for name, values in call.data.items()}) for m in range(ensemble.count)]


def _engines(ensemble: Ensemble, engine: Engine | Sequence[Engine]) -> list[Engine]:
    """One engine per member."""
    if isinstance(engine, Engine):
        return [engine] * ensemble.count
    if not isinstance(engine, Sequence) or len(engine) != ensemble.count:
        raise InputError(f"Give one engine, or a list of {ensemble.count}, one for each member.")
    return list(engine)


def _joint(plans: Sequence[Prepared]) -> tuple[Prepared, tuple[int | None, ...]]:
    """One plan for plans with equal keys, and the axis of members of each of its tensors: None if all share it."""
    columns = list(zip(*(plan.tensors for plan in plans), strict=True))
    axes = tuple(None if all(one is column[0] for one in column) else 0 for column in columns)
    tensors = (column[0] if axis is None else torch.stack(column) for column, axis in zip(columns, axes, strict=True))
    return replace(plans[0], tensors=tuple(tensors)), axes


def _stacked(results: Sequence[Any]) -> Any:
    if isinstance(results[0], Tensor):
        return torch.stack(list(results))
    return tuple(torch.stack(column) for column in zip(*results, strict=True))
