"""What is compiled once and what anew: networks written at each call, and numbers that change."""

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
    assert heat._compiled.made == 1


@pytest.mark.usefixtures("only_traced")
def test_a_number_that_changes_is_named_as_the_reason(monkeypatch):
    monkeypatch.setattr("dudx.compile.graphs._TOLD", 3)
    monkeypatch.setattr("dudx.compile.graphs._MOST", 3)
    a, _, c = layers()
    model, x, nu = nn.Sequential(a, nn.Tanh(), c), points(6, 2), [0.0]
    heat = dudx.Residual(lambda u: u.y - nu[0] * u.xx, ("x", "y"), compile=True)
    plain = dudx.Residual(lambda u: u.y - nu[0] * u.xx, ("x", "y"))
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always", dudx.CompilationWarning)
        for number in range(5):
            nu[0] = 0.1 * (number + 1)
            torch.testing.assert_close(heat.loss(model, x, dudx.FD(1e-2)), plain.loss(model, x, dudx.FD(1e-2)))
    (said,) = [str(warning.message) for warning in seen if warning.category is dudx.CompilationWarning]
    assert "multiplies them with another number" in said
    assert heat._compiled is not None
    assert heat._compiled.made == 3
