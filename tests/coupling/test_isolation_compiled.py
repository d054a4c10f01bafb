"""Residuals of isolated networks, compiled: the graph belongs to the network inside, and the batch is data."""

from __future__ import annotations

import copy
import warnings

import pytest
import torch
from torch import nn

from dudx import FD, Residual, Taylor, frozen, isolate
from dudx.errors import CompilationWarning


def network(count: int = 1) -> nn.Module:
    torch.manual_seed(0)
    layers = [nn.Linear(2, 8), nn.BatchNorm1d(8), nn.Tanh(), *[nn.BatchNorm1d(8)] * (count - 1)]
    return nn.Sequential(*layers, nn.Linear(8, 1)).double()


def transport(u):
    return u.x + u * u.y


@pytest.mark.usefixtures("only_traced")
@pytest.mark.parametrize("engine", [Taylor(), FD(1e-2)], ids=["Taylor", "FD"])
def test_one_graph_serves_every_batch(engine):
    models = [network()]
    models.append(copy.deepcopy(models[0]))
    compiled, eager = Residual(transport, ("x", "y"), compile=True), Residual(transport, ("x", "y"))
    spent = []
    for _ in range(3):
        x = torch.rand(16, 2, dtype=torch.float64)
        losses = [r.loss(isolate(m, x), x, engine) for r, m in zip((compiled, eager), models, strict=True)]
        assert torch.allclose(*losses, rtol=1e-8)
        for model, loss in zip(models, losses, strict=True):
            model.zero_grad()
            loss.backward()
        for ours, exact in zip(*(m.parameters() for m in models), strict=True):
            # Differences divide rounding by the step.
            assert torch.allclose(ours.grad, exact.grad, rtol=1e-8, atol=1e-10)
        for ours, exact in zip(*(m.buffers() for m in models), strict=True):
            assert torch.allclose(ours, exact, rtol=1e-12)
        spent.append(compiled.compile_seconds)
    assert spent[0] > 0
    assert spent == [spent[0]] * 3


def test_an_exactly_isolated_network_goes_on_without_and_says_so_once():
    model, x = network(2), torch.rand(8, 2, dtype=torch.float64)
    compiled, eager = Residual(transport, ("x", "y"), compile=True), Residual(transport, ("x", "y"))
    isolated = isolate(model, x, update_statistics=False, exact=True)
    with pytest.warns(CompilationWarning, match="exactly isolated network passes in chunks.*going on without it"):
        first = compiled.loss(isolated, x, Taylor())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(compiled.loss(isolated, x, Taylor()), first)
    assert torch.equal(first, eager.loss(isolated, x, Taylor()))


class Rescaled(nn.Module):
    """Computes with its points before the first layer, and after the last one."""

    middle: torch.Tensor

    def __init__(self):
        super().__init__()
        self.network = network()
        self.register_buffer("middle", torch.tensor([0.5, 0.25], dtype=torch.float64))

    def forward(self, x):
        return self.network((2 * x - self.middle) / (1 - self.middle)) + (self.middle - x)[:, :1]


@pytest.mark.usefixtures("only_traced")
def test_a_network_that_computes_with_its_points_compiles_too():
    model, context, x = Rescaled(), *torch.rand(2, 16, 2, dtype=torch.float64)
    compiled, eager = Residual(transport, ("x", "y"), compile=True), Residual(transport, ("x", "y"))
    seen = frozen(model, context, update_statistics=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error", CompilationWarning)
        ours = compiled.loss(seen, x, Taylor())
    assert torch.allclose(ours, eager.loss(seen, x, Taylor()), rtol=1e-10)
