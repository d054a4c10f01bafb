"""Recompilation: networks created at each call, and numbers that change."""

from __future__ import annotations

import warnings

import pytest
import torch
from helpers import points
from torch import nn
from traps import layers

import dudx


@pytest.mark.usefixtures("only_traced")
@pytest.mark.parametrize("fresh", ["lambda", "method"])
def test_a_network_that_is_written_anew_at_each_call_is_compiled_once(fresh):
    a, _, c = layers()
    model, x = nn.Sequential(a, nn.Tanh(), c), points(6, 2)
    heat = dudx.Residual(lambda u: u.y - u.xx, ("x", "y"), compile=True)
    true = dudx.Residual(lambda u: u.y - u.xx, ("x", "y")).loss(model, x, dudx.FD(1e-2))
    for _ in range(4):
        network = (lambda x: model(x)) if fresh == "lambda" else model.forward
        torch.testing.assert_close(heat.loss(network, x, dudx.FD(1e-2)), true)
    assert heat._compiled is not None
    assert heat._compiled.graph_count == 1


@pytest.mark.usefixtures("only_traced")
def test_a_number_that_changes_is_named_as_the_reason(monkeypatch):
    monkeypatch.setattr("dudx.network.compiled_graph._WARN_AFTER", 3)
    monkeypatch.setattr("dudx.network.compiled_graph._MAX_PER_NETWORK", 3)
    a, _, c = layers()
    model, x, nu = nn.Sequential(a, nn.Tanh(), c), points(6, 2), [0.0]
    heat = dudx.Residual(lambda u: u.y - nu[0] * u.xx, ("x", "y"), compile=True)
    plain = dudx.Residual(lambda u: u.y - nu[0] * u.xx, ("x", "y"))
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always", dudx.errors.CompilationWarning)
        for number in range(5):
            nu[0] = 0.1 * (number + 1)
            torch.testing.assert_close(heat.loss(model, x, dudx.FD(1e-2)), plain.loss(model, x, dudx.FD(1e-2)))
    (said,) = [str(warning.message) for warning in seen if warning.category is dudx.errors.CompilationWarning]
    assert "multiplies them with another number" in said
    assert heat._compiled is not None
    assert heat._compiled.graph_count == 3


class Changing(nn.Module):
    """A network with attributes of all kinds."""

    def __init__(self):
        super().__init__()
        self.a, _, self.b = layers()
        self.scale, self.twice, self.times = 2.0, False, 1
        self.activation, self.numbers, self.named = torch.tanh, [1.0, 2.0], {"k": 1.0}
        self.register_buffer("shift", torch.ones(1, dtype=torch.float64))

    def forward(self, x):
        h = self.activation(self.a(x))
        for _ in range(self.times):
            h = torch.sin(h)
        h = 2 * h if self.twice else h
        return self.b(h) * self.scale * self.numbers[1] * self.named["k"] + self.shift


CHANGES = {
    "a number": lambda net: setattr(net, "scale", 3.0),
    "a switch": lambda net: setattr(net, "twice", True),
    "a count": lambda net: setattr(net, "times", 3),
    "a function": lambda net: setattr(net, "activation", torch.sin),
    "a number in a list": lambda net: net.numbers.__setitem__(1, 5.0),
    "a number in a dict": lambda net: net.named.__setitem__("k", 7.0),
    "a buffer's numbers": lambda net: net.shift.fill_(3.0),
    "a buffer": lambda net: setattr(net, "shift", torch.full((1,), 4.0, dtype=torch.float64)),
    "a parameter's numbers": lambda net: setattr(net.a.weight, "data", 2 * net.a.weight.data),
    "a parameter": lambda net: setattr(net.b, "weight", nn.Parameter(torch.rand(1, 8, dtype=torch.float64))),
    "a layer": lambda net: setattr(net, "a", layers(1)[0]),
    "what is trained": lambda net: net.a.requires_grad_(False),
    "a hook": lambda net: net.a.register_forward_hook(lambda module, given, out: 2 * out),
    "a hook before": lambda net: net.b.register_forward_pre_hook(lambda module, given: (3 * given[0],)),
    "a parametrization": lambda net: nn.utils.parametrize.register_parametrization(net.b, "weight", nn.Tanh()),
    "a norm of weights": lambda net: nn.utils.parametrizations.weight_norm(net.a),
    "a forward pass": lambda net: setattr(net.b, "forward", lambda h: h.sum(1, keepdim=True)),
}


@pytest.mark.usefixtures("only_traced")
@pytest.mark.parametrize("engine", [dudx.Taylor(), dudx.FD(1e-2)], ids=["Taylor", "FD"])
@pytest.mark.parametrize("change", CHANGES)
def test_whatever_changes_in_a_network_its_graph_follows(change, engine):
    net, x = Changing(), points(6, 2)
    plain, compiled = (dudx.Residual(lambda u: u.y + u * u.x - u.xx, ("x", "y"), compile=c) for c in (False, True))
    before = compiled.loss(net, x, engine).detach()
    CHANGES[change](net)
    found = []
    for residual in (plain, compiled):
        net.zero_grad()
        loss = residual.loss(net, x, engine)
        loss.backward()
        found.append([loss.detach(), *(p.grad for p in net.parameters() if p.grad is not None)])
    for exact, ours in zip(*found, strict=True):
        torch.testing.assert_close(ours, exact)
    if change not in ("what is trained", "a norm of weights"):  # which change the gradient only
        assert not torch.allclose(found[0][0], before)
