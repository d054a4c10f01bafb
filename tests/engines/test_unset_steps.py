"""An engine that has no step yet is refused before the network is called at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from helpers import Counted, mlp, points

import dudx
from dudx import EFD, FD, SFD, STDE, D, Engine, Laplacian, Residual, Separated
from dudx.errors import StepNotSetError

#: Engines without a step, and engines made of one.
UNSET: dict[str, Engine] = {
    "FD": FD(),
    "EFD": EFD(),
    "EFD with another order": EFD({1: 1e-2}),
    "SFD": SFD(),
    "FD inside": FD(inside=lambda x: x.abs().amax(1) - 2),
    "STDE": STDE(inner=FD()),
}
HEAT = Residual(lambda u: u.t - u.xx, ("x", "t"))
COMPILED = HEAT.compiled()

#: Ways to ask for derivatives, all of which need a second one along x.
WAYS: dict[str, Callable[[Any, torch.Tensor, Engine], object]] = {
    "evaluate": lambda model, x, engine: dudx.evaluate(model, x, [D(1), Laplacian([0])], engine),
    "evaluate compiled": lambda model, x, engine: dudx.evaluate(model, x, D(0, 0), engine, compile=True),
    "residual": lambda model, x, engine: HEAT(model, x, engine),
    "loss": lambda model, x, engine: HEAT.loss(model, x, engine),
    "compiled residual": lambda model, x, engine: COMPILED(model, x, engine),
    "compiled loss": lambda model, x, engine: COMPILED.loss(model, x, engine),
    "jacobian": lambda model, x, engine: HEAT.jacobian(model, x, engine),
    "slices": lambda model, x, engine: dudx.backward(lambda part: HEAT.loss(model, part, engine), x, chunk=4),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", UNSET)
def test_the_network_is_not_called(name: str, way: str) -> None:
    model, x = Counted(mlp()), points(12, 2)
    with pytest.raises(StepNotSetError, match="calibrated"):
        WAYS[way](model, x, UNSET[name])
    assert model.rows == []


@pytest.mark.parametrize("name", UNSET)
def test_no_member_of_an_ensemble_is_called(name: str) -> None:
    calls: list[int] = []

    class Noted(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(2, 1).double()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            calls.append(len(x))
            return torch.tanh(self.layer(x))

    several = dudx.ensemble([Noted(), Noted()])
    for way in ("evaluate", "residual", "loss", "compiled loss"):
        with pytest.raises(StepNotSetError, match="calibrated"):
            WAYS[way](several, points(12, 2), UNSET[name])
    assert calls == []


def test_no_factor_of_a_separable_network_is_called() -> None:
    factors = [Counted(torch.sin), Counted(torch.exp)]

    class Product(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.factors = factors

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return factors[0](x[:, :1]) * factors[1](x[:, 1:])

    axes = [torch.linspace(0, 1, 5, dtype=torch.float64)] * 2
    engine = Separated(axes, inner=FD())
    with pytest.raises(StepNotSetError, match="calibrated"):
        dudx.evaluate(Product(), engine.points, D(0, 1), engine)
    assert [factor.rows for factor in factors] == [[], []]


@pytest.mark.parametrize("name", ["FD", "EFD", "SFD"])
def test_values_need_no_step(name: str) -> None:
    model, x = mlp(), points(12, 2)
    torch.testing.assert_close(dudx.evaluate(model, x, D(), UNSET[name]), model(x))


@pytest.mark.parametrize("name", ["FD", "EFD", "SFD"])
def test_a_calibrated_engine_is_taken(name: str) -> None:
    model, x = mlp(), points(40, 2)
    engine = UNSET[name].calibrated(model, x, HEAT.operators(x))
    assert torch.isfinite(HEAT.loss(model, x, engine))
