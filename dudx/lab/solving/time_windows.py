"""Windows of time, one after the other, each with a network of its own that starts where the last one ended.

Over a long time a network may satisfy an equation almost everywhere and still not depend on the initial condition. Over
a short time it cannot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from dudx.engines.taylor import Taylor
from dudx.evaluate import evaluate
from dudx.lab.problems import Problem
from dudx.lab.problems.conditions import Condition, Initial
from dudx.lab.problems.conditions.variables import with_arguments
from dudx.lab.problems.geometry import Cylinder, Interval
from dudx.lab.run.settings import Settings
from dudx.lab.run.trained_networks import rebuilt
from dudx.lab.solving.stage import Stage
from dudx.operators import D


class Windows(nn.Module):
    """A function of time and space that is another network in each window of time.

    Args:
        networks: a network per window.
        spans: start and end of each window; the last network also gives all later values.
        axis: the column of time.
    """

    def __init__(self, networks: Sequence[nn.Module], spans: Sequence[tuple[float, float]], axis: int):
        super().__init__()
        self.networks, self.spans, self.axis = nn.ModuleList(networks), list(spans), axis

    def forward(self, x: Tensor) -> Tensor:
        found = [(rows, network(x[rows])) for rows, network in self.parts(x)]
        out = found[0][1].new_empty(len(x), found[0][1].shape[1])
        for rows, values in found:
            out[rows] = values
        return out

    def parts(self, x: Tensor) -> Iterator[tuple[Tensor, nn.Module]]:
        """Yield the rows of each window that has any, and its network."""
        inner = x.new_tensor([end for _, end in self.spans[:-1]])
        window = torch.bucketize(x[:, self.axis].contiguous(), inner)
        for number in window.unique().tolist():
            yield (window == number).nonzero()[:, 0], self.networks[number]


def joined(
    networks: Sequence[nn.Module],
    windows: Sequence[Mapping[str, float]],
    current: nn.Module,
    stage: Stage,
    end: float,
    axis: int,
) -> tuple[Windows, float | None]:
    """Join the networks of finished windows, and the current one of a stage; with the estimate if all are finished.

    Errors add up from window to window. That they may grow on the way is not in the sum.
    """
    spans = [(window["from"], window["to"]) for window in windows]
    if spans and spans[-1][1] >= end:
        return Windows(networks, spans, axis), sum(window["estimate"] for window in windows)
    return Windows([*networks, current], [*spans, (stage.start, stage.end)], axis), None


def networks_and_spans(network: nn.Module) -> tuple[list[nn.Module], list[tuple[float, float]]]:
    """Return the networks of windows and their spans, or one network without any."""
    return (list(network.networks), network.spans) if isinstance(network, Windows) else ([network], [])


def rebuilt_windows(
    problem: Problem, settings: Settings, states: Sequence[Mapping[str, Any]], spans: Sequence[tuple[float, float]]
) -> list[nn.Module]:
    """Build the networks of windows from their stored states."""
    networks: list[nn.Module] = []
    for state, (start, end) in zip(states, spans, strict=True):
        before = networks[-1] if networks else None
        networks.append(rebuilt(window_problem(problem, start, end, before), settings, state))
    return networks


def can_be_cut(problem: Problem) -> bool:
    """Return True for an evolution problem: the initial values, and nothing later in time, select its solution."""
    conditions = problem.conditions
    if problem.time is None or problem.unknowns or conditions.data or not conditions.initial:
        return False
    if any(isinstance(one, Condition) for one in conditions.specs):
        return False
    time = problem.inputs[problem.time]
    orders = {name: along.get(time, 0) for name, along in problem.orders.items()}
    given = [problem.parse_derivative(key)[0] for one in conditions.initial for key in one.given]
    return any(orders.values()) and all(given.count(name) >= order for name, order in orders.items())


def warm_start(network: nn.Module, before: nn.Module) -> None:
    """Copy the parameters of the window before, where the networks are built alike; the bounds of inputs stay."""
    ours, theirs = dict(network.named_parameters()), dict(before.named_parameters())
    if {name: p.shape for name, p in ours.items()} == {name: p.shape for name, p in theirs.items()}:
        with torch.no_grad():
            for name, parameter in ours.items():
                parameter.copy_(theirs[name])


def window_problem(problem: Problem, start: float, end: float, before: nn.Module | None) -> Problem:
    """Restrict a problem to a window of time, with initial values from the network of the window before."""
    between = Interval(start, end)
    domain = problem.domain.space * between if isinstance(problem.domain, Cylinder) else between
    specs = problem.conditions.specs
    if before is not None:
        given = {key: _carried(problem, before, key, start) for one in problem.conditions.initial for key in one.given}
        name = problem.conditions.initial[0].name
        specs = (*(one for one in specs if not isinstance(one, Initial)), Initial(hard=False, name=name, **given))
    return replace(problem, domain=domain, conditions=specs, solution=None)


def _carried(problem: Problem, network: nn.Module, key: str, at: float) -> Callable[..., Any]:
    """Return u, or a derivative such as u_t, at the time `at` as a function of the coordinates in space."""
    name, along = problem.parse_derivative(key)
    axes, output = [problem.inputs.index(i) for i in along], problem.names.index(name)
    places = [i for n, i in enumerate(problem.inputs) if n != problem.time]
    like = next(network.parameters())

    def value(given: Mapping[str, Tensor]) -> Tensor:
        columns = [given[place].to(like) for place in places]
        rows = len(columns[0]) if columns else 1
        columns.insert(problem.time or 0, like.new_full((rows, 1), at))
        found = evaluate(network, torch.cat(columns, dim=1), D(*axes), Taylor())
        return found[:, output : output + 1] if columns[1:] else found[0, output]

    return with_arguments(value, places)
