"""A residual of an ensemble whose members have points of their own, and perhaps an engine each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from dudx.engines.interface import Engine, Prepared
from dudx.engines.request import Request as EngineRequest
from dudx.errors import InputError
from dudx.evaluate import derivatives, prepared
from dudx.network.ensemble import Ensemble
from dudx.operators import D
from dudx.residual.request import Request

#: The points of one member, and its data.
Own = tuple[Tensor, dict[str, Tensor]]
#: From a member's derivatives, request, points and data to what is asked for.
Finish = Callable[[Sequence[Tensor], Request, Tensor, Mapping[str, Tensor]], Any]


def apart(several: Ensemble, x: Tensor, data: Mapping[str, Tensor]) -> list[Own]:
    """The points (M, B, d) and data (M, B, …) of each member."""
    for name, values in {"points": x, **data}.items():
        if len(values) != several.count or values.ndim < 3 or values.shape[1] != x.shape[1]:
            raise InputError(
                f"Where members have points of their own, points and data have shape ({several.count}, B, …), one "
                f"batch a member; the {name} have shape {tuple(values.shape)}."
            )
    return [(x[m], {name: values[m] for name, values in data.items()}) for m in range(several.count)]


def engines_of(several: Ensemble, engine: Engine | Sequence[Engine]) -> list[Engine]:
    """One engine for each member."""
    if isinstance(engine, Engine):
        return [engine] * several.count
    if not isinstance(engine, Sequence) or len(engine) != several.count:
        raise InputError(f"Give one engine, or a list of {several.count}, one for each member.")
    return list(engine)


def of_members(
    several: Ensemble,
    x: Tensor,
    data: Mapping[str, Tensor],
    each: Sequence[Own],
    engines: Sequence[Engine],
    requests: Sequence[Request],
    finish: Finish,
    graph: Callable[[Prepared, Any], Any] | None,
) -> Any:
    """What `finish` makes of each member's derivatives, with a leading axis of members.

    One plan for all is one pass, from a compiled `graph` where there is one; plans that differ, as where one member's
    steps for two orders happen to be equal, are followed member by member.
    """
    if any(request.elsewhere for request in requests):
        raise InputError(
            "Members with points of their own are not known to integrals, fractional and upwind derivatives; give all "
            "members the same points, or compute them one by one."
        )
    plans = [
        prepared(several.kind, points, request.for_engine, engine)
        for (points, _), request, engine in zip(each, requests, engines, strict=True)
    ]
    first, request = plans[0], requests[0]
    if first is None or any(plan is None for plan in plans):
        return _without_plan(several, x, data, each, engines, requests, finish)
    ways = {(plan.key, asked.places, asked.shapes) for plan, asked in zip(plans, requests, strict=True) if plan}
    if len(ways) > 1 or not request.repeatable:
        results = [
            finish(plan.run(several.member(m), points, plan.tensors), asked, points, given)
            for m, (plan, asked, (points, given)) in enumerate(zip(plans, requests, each, strict=True))
            if plan is not None
        ]
        return _stacked(results)
    plan, axes = _joint([plan for plan in plans if plan is not None])
    if graph is not None:
        return graph(plan, axes)

    def of(member: Any, x: Tensor, planned: tuple[Tensor, ...], data: dict[str, Tensor]) -> Any:
        return finish(plan.run(member, x, planned), request.with_data(data, x), x, data)

    return several.map(of, x, plan.tensors, dict(data), axes=(0, axes, 0))


def _joint(plans: Sequence[Prepared]) -> tuple[Prepared, tuple[int | None, ...]]:
    """One plan of several with equal keys: tensors that differ are stacked, as the axes say."""
    columns = list(zip(*(plan.tensors for plan in plans), strict=True))
    axes = tuple(None if all(one is column[0] for one in column) else 0 for column in columns)
    tensors = (column[0] if axis is None else torch.stack(column) for column, axis in zip(columns, axes, strict=True))
    return replace(plans[0], tensors=tuple(tensors)), axes


def _without_plan(
    several: Ensemble,
    x: Tensor,
    data: Mapping[str, Tensor],
    each: Sequence[Own],
    engines: Sequence[Engine],
    requests: Sequence[Request],
    finish: Finish,
) -> Any:
    engine, request = engines[0], requests[0]
    if any(other != engine for other in engines) or not request.repeatable:
        raise InputError(
            f"{type(engine).__name__} makes no plan that members could share, so they have one engine, and directions "
            "that are data; Taylor, FD, EFD and SFD make one."
        )
    for points, _ in each:  # the checks, which cannot be made for all members at once
        derivatives(several.kind, points, EngineRequest((D(),)), engine)

    def of(member: Any, x: Tensor, data: dict[str, Tensor]) -> Any:
        asked = request.with_data(data, x)
        return finish(derivatives(member, x, asked.for_engine, engine), asked, x, data)

    return several.map(of, x, dict(data), axes=(0, 0))


def _stacked(results: Sequence[Any]) -> Any:
    if isinstance(results[0], Tensor):
        return torch.stack(list(results))
    return tuple(torch.stack(column) for column in zip(*results, strict=True))
