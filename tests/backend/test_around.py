"""Inside of a user's own torch.compile: the same numbers, and the same refusals."""

from __future__ import annotations

import pytest
import torch
from helpers import mlp, points
from torch import nn

import dudx
from dudx import D, Residual, evaluate

ENGINES = {"Taylor": dudx.Taylor(), "FD": dudx.FD(1e-2), "AD": dudx.AD(), "SFD": dudx.SFD((1e-2, 1e-2))}
HEAT = Residual(lambda u: u.t - u.xx, ("x", "t"))
#: Uses of an engine inside a user's own compiled step.
WAYS = {
    "evaluate": lambda model, x, engine: evaluate(model, x, D(0, 0), engine).square().mean(),
    "residual": lambda model, x, engine: HEAT(model, x, engine).square().mean(),
    "loss": lambda model, x, engine: HEAT.loss(model, x, engine),
    "jacobian": lambda model, x, engine: HEAT.jacobian(model, x, engine)[1].sum(),
}


@pytest.fixture(autouse=True)
def fresh():
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def compiled(function):
    return torch.compile(function, backend="eager")


@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
@pytest.mark.parametrize("way", WAYS)
def test_a_step_that_is_compiled_has_the_numbers_of_one_that_is_not(way, engine):
    model, x = mlp(2, 1, width=8), points(6, 2)

    def step(x):
        return 2 * WAYS[way](model, torch.sin(x), engine)

    assert torch.allclose(compiled(step)(x), step(x), rtol=1e-12)


@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
@pytest.mark.parametrize("way", WAYS)
def test_coupled_samples_are_refused_there_too(way, engine):
    model = nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 1)).double()
    with pytest.raises(dudx.CoupledModelError):
        compiled(lambda x: WAYS[way](model, x, engine))(points(6, 2))


def test_isolated_networks_are_looked_at_there_too():
    """Two norms in a row, which one pass would not do justice to."""
    model = nn.Sequential(
        nn.Linear(2, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 1)
    ).double()
    x = points(7, 2)

    def step(x):
        return evaluate(dudx.isolate(model, x, update_statistics=False), x, D(0), dudx.Taylor())

    assert torch.allclose(compiled(step)(x), step(x), rtol=1e-10)
