"""A long time in windows, one after the other, each with a network of its own that starts where the last one ended.

A network that is to satisfy an equation over a long time may settle for a function that satisfies it almost everywhere
and has left the start behind. Over a short time it cannot. How long a window may be is found by trying: one whose
estimated error stays large is halved, and after one that went well the next is longer.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
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
from dudx.lab.solving.staged import train_and_look
from dudx.operators import D

#: A window is accepted when its estimated error is below this, and the next one is longer when it is far below.
_GOOD, _VERY_GOOD = 1e-3, 1e-4
#: The first window is this share of all, the shortest one that.
_FIRST, _SHORTEST = 1 / 4, 1 / 128
#: One whose error is below the first is done, and one whose error is above these after shares of its time is given up.
_ENOUGH, _LOOKS = 1e-6, ((1 / 4, 0.3), (1 / 2, 0.03), (1.0, math.inf))


class Windows(nn.Module):
    """Networks for one window of time each."""

    def __init__(self, networks: Sequence[nn.Module], ends: Sequence[float], axis: int):
        super().__init__()
        self.networks, self.ends, self.axis = nn.ModuleList(networks), list(ends), axis

    def forward(self, x: Tensor) -> Tensor:
        found = [(rows, network(x[rows])) for rows, network in self.parts(x)]
        out = found[0][1].new_empty(len(x), found[0][1].shape[1])
        for rows, values in found:
            out[rows] = values
        return out

    def parts(self, x: Tensor) -> Iterator[tuple[Tensor, nn.Module]]:
        """The rows of each window that has any, and its network."""
        inner = x.new_tensor(self.ends[:-1])
        window = torch.bucketize(x[:, self.axis].contiguous(), inner)
        for number in window.unique().tolist():
            yield (window == number).nonzero()[:, 0], self.networks[number]


@dataclass(frozen=True)
class Marched:
    """What windows came to."""

    network: Windows
    #: Of each window its times, its estimated error and its steps.
    windows: list[dict[str, float]]
    cpu_seconds: float


def can_be_cut(problem: Problem) -> bool:
    """Whether a problem goes on from a start, and from nothing else."""
    plain = not any(isinstance(one, Condition) for one in problem.conditions.specs)
    return problem.time is not None and plain and bool(problem.conditions.initial) and not problem.conditions.data


def march(problem: Problem, settings: Settings, seconds: float, folder: Path, told: Callable[[str], None]) -> Marched:
    """Solve a problem window by window within some CPU seconds."""
    axis = problem.time
    assert axis is not None
    start, end = (corner[axis] for corner in problem.domain.bounds)
    at, length, spent, began = start, _FIRST * (end - start), 0.0, time.process_time()
    networks: list[nn.Module] = []
    windows: list[dict[str, float]] = []
    while at < end:
        length = min(length, end - at)
        to = end if at + 1.25 * length > end else at + length
        last = to - at <= _SHORTEST * (end - start) or spent >= seconds
        # A short window takes as many steps as a long one, so that there is a least time for each; what is tried and
        # halved has its cost too, so that a third is kept back.
        least = 0.03 if spent < 0.8 * seconds else 0.01
        budget = max(2 * (seconds - spent) * (to - at) / (end - at) / 3, least * seconds)
        own = _window(problem, at, to, networks[-1] if networks else None)
        place = folder / f"window-{len(windows)}-{to:.6g}"
        short = settings.model_copy(update={"settled": 40})
        looks = [(share, math.inf) for share, _ in _LOOKS] if last else _LOOKS
        found = train_and_look(own, short, place, budget, _ENOUGH, looks, careful=False)
        result, error, spent = found.result, found.error, time.process_time() - began
        if result["status"] == "interrupted":
            raise KeyboardInterrupt
        if error > _GOOD and not last:
            length = (to - at) / 2
            continue
        told(f"{problem.inputs[axis]} from {at:.4g} to {to:.4g}: estimated error {error:.1e}, {spent:.0f} CPU seconds")
        networks.append(found.trainer.model.eval())
        windows.append({"from": at, "to": to, "estimate": error, "steps": result["epochs"]})
        length = (to - at) * (1.5 if error < _VERY_GOOD else 1.0)
        at = to
    return Marched(Windows(networks, [window["to"] for window in windows], axis), windows, spent)


def _window(problem: Problem, start: float, end: float, before: nn.Module | None) -> Problem:
    """The problem between two times, starting from what a network says."""
    between = Interval(start, end)
    domain = problem.domain.space * between if isinstance(problem.domain, Cylinder) else between
    stated = problem.conditions.specs
    if before is not None:
        given = {key: _carried(problem, before, key, start) for one in problem.conditions.initial for key in one.given}
        stated = (*(one for one in stated if not isinstance(one, Initial)), Initial(hard=False, name=None, **given))
    return replace(problem, domain=domain, conditions=stated, solution=None)


def _carried(problem: Problem, network: nn.Module, key: str, at: float) -> Callable[..., Any]:
    """The value of u, or of u_t, at the end of the window before, as a function of the place."""
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
