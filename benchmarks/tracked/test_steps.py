"""Timings to compare between versions, in the format of pytest-benchmark, which CodSpeed reads too.

    make bench-tracked

writes out/tracked.json; `pytest-benchmark compare` compares several such files. Times are CPU seconds on one thread.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from torch import nn

import dudx

torch.set_num_threads(1)

#: Engine and compilation flag by name.
WAYS: dict[str, tuple[dudx.Engine, bool]] = {
    "AD": (dudx.AD(), False),
    "FD": (dudx.FD(step=1e-2), False),
    "Taylor": (dudx.Taylor(), False),
    "Taylor, compiled": (dudx.Taylor(), True),
}


def network(width: int, dtype: torch.dtype = torch.float32) -> nn.Module:
    """Return a tanh network with three hidden layers."""
    torch.manual_seed(0)
    sizes = [2, width, width, width]
    hidden = [layer for a, b in itertools.pairwise(sizes) for layer in (nn.Linear(a, b), nn.Tanh())]
    return nn.Sequential(*hidden, nn.Linear(width, 1)).to(dtype)


def burgers(compile: bool = False) -> Any:
    """Return the residual of Burgers' equation."""
    return dudx.Residual(lambda u: u.t + u * u.x - 0.01 / math.pi * u.xx, inputs=("x", "t"), compile=compile)


@pytest.mark.parametrize("width", [20, 128])
@pytest.mark.parametrize("way", WAYS)
def test_training_step(benchmark: Any, way: str, width: int) -> None:
    """Time loss, gradient and an Adam step on 2 000 points."""
    engine, compile = WAYS[way]
    model, points, equation = network(width), torch.rand(2000, 2), burgers(compile)
    optimizer = torch.optim.Adam(model.parameters())

    def step() -> float:
        optimizer.zero_grad()
        loss = equation.loss(model, points, engine)
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    losses = [step() for _ in range(5)]  # warm-up: compilation and checks of a new network
    assert all(map(math.isfinite, losses))
    benchmark.pedantic(step, rounds=20, iterations=1)


def test_second_order_step(benchmark: Any) -> None:
    """Time a Levenberg-Marquardt step on 1 000 points in double precision."""
    model, points, equation = network(20, torch.float64), torch.rand(1000, 2, dtype=torch.float64), burgers()
    optimizer = dudx.optim.LevenbergMarquardt(model.parameters())

    def step() -> None:
        optimizer.step([dudx.optim.Term(equation, model, points, dudx.Taylor())])

    step()
    benchmark.pedantic(step, rounds=10, iterations=1)


def test_calibration(benchmark: Any) -> None:
    """Time the calibration of finite differences for a network."""
    model, points = network(20), torch.rand(500, 2)
    asked = burgers().operators(points)
    benchmark.pedantic(lambda: dudx.EFD().calibrated(model, points, asked), rounds=5, iterations=1, warmup_rounds=1)
