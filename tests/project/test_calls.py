"""A residual on a small network takes few Python calls and few changes between files."""

import importlib.util
from pathlib import Path

import pytest
import torch
from helpers import mlp

from dudx import AD, FD, Residual

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "calls.py"


@pytest.fixture(scope="module")
def counted():
    spec = importlib.util.spec_from_file_location("calls", BENCHMARK)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.counted


@pytest.mark.parametrize("engine", [FD(1e-2), AD()], ids=["FD", "AD"])
def test_a_residual_that_was_met_before_takes_few_calls(counted, engine):
    burgers = Residual(lambda u: u.t + u * u.x - 0.01 * u.xx, ("x", "t"))
    model, x = mlp(), torch.rand(64, 2, dtype=torch.float64)
    for _ in range(10):
        burgers(model, x, engine)
    calls, changes = counted(lambda: burgers(model, x, engine))
    assert 20 < calls < 120
    assert changes < 37
