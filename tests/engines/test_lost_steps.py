"""Difference steps beside the spacing of floats at the points: the derivative is right, or the step is refused."""

from __future__ import annotations

import functools
import itertools
import math

import pytest
import torch
from helpers import every_engine, mlp, points
from torch import Tensor

import dudx
from dudx import EFD, FD, SFD, Along, D, Laplacian
from dudx.engines.request import request_of

#: Engines by their step.
ENGINES = {
    "FD": lambda h: FD(h),
    "FD per axis": lambda h: FD((2 * h, h)),
    "FD, fourth order": lambda h: FD(h, accuracy=4),
    "FD forward": lambda h: FD(h, side="forward"),
    "FD backward": lambda h: FD(h, side="backward"),
    "FD inside": lambda h: FD(h, inside=lambda x: x.abs().amax(1) - 1e9),
    "EFD": lambda h: EFD({1: h, 2: 2 * h}),
    "SFD": lambda h: SFD((h, 2 * h)),
    "SFD with a generator": lambda h: SFD((h, 2 * h), generator=torch.Generator().manual_seed(0)),
}
STEPS = [1e-3, 1e-2, 1e-1, 1.0]
PLACES = [0.0, 10.0, 1e3, 1e4, 1e6]


class Wave:
    """sin(x - c) cos(y - c) + 3 (x - c) around a centre c, which is exact in the format of the points."""

    def __init__(self, centre: float):
        self.centre = centre

    def __call__(self, x: Tensor) -> Tensor:
        x = x - self.centre
        return torch.sin(x[:, :1]) * torch.cos(x[:, 1:]) + 3 * x[:, :1]

    def derivatives(self, x: Tensor) -> dict[str, Tensor]:
        x, y = (x - self.centre).double().split(1, dim=1)
        return {
            "first": torch.cos(x) * torch.cos(y) + 3,
            "second": -torch.sin(x) * torch.cos(y),
            "mixed": -torch.cos(x) * torch.sin(y),
        }


OPERATORS = {"first": D(0), "second": D(0, 0), "mixed": D(0, 1)}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", ENGINES)
def test_right_or_refused(name, dtype):
    """At a step where the stencil itself is accurate, what is returned is, too, wherever the points lie."""
    answered = refused = 0
    for centre, step, kind in itertools.product(PLACES, STEPS[:3], OPERATORS):
        x = (points(64, 2) + centre).to(dtype)
        wave, engine = Wave(centre), ENGINES[name](step)
        try:
            found = dudx.evaluate(wave, x, OPERATORS[kind], engine).double()
        except dudx.errors.UnsupportedError as refusal:
            if "too small for these points" not in str(refusal):
                raise
            refused += 1
            continue
        answered += 1
        exact = wave.derivatives(x)[kind]
        off = float((found - exact).square().mean().sqrt() / exact.square().mean().sqrt())
        stencil = _error_at_the_origin(name, step, kind, dtype)
        assert off < stencil + (0.02 if kind == "first" else 0.3), (centre, step, kind, off)
    assert answered
    assert refused or dtype == torch.float64


@functools.cache
def _error_at_the_origin(name: str, step: float, kind: str, dtype: torch.dtype) -> float:
    """The error of stencil and function where the points are as small as they are spread."""
    x, wave = points(64, 2).to(dtype), Wave(0.0)
    exact = wave.derivatives(x)[kind]
    found = ENGINES[name](step).derivatives(wave, x, request_of(OPERATORS[kind], x))[0].double()
    return 1.5 * float((found - exact).square().mean().sqrt() / exact.square().mean().sqrt())


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize(("place", "step"), [(1e6, 1e-2), (1e4, 1e-3), (1e5, 1e-3)])
def test_lost_steps_are_refused(name, place, step):
    x = (points(16, 2) + place).float()
    for operator in (D(0), D(1), Laplacian(), D(0) + Laplacian(), Along(torch.ones_like(x))):
        with pytest.raises(dudx.errors.UnsupportedError, match="float64"):
            dudx.evaluate(Wave(place), x, operator, ENGINES[name](step))


def test_a_smaller_step_of_an_engine_that_was_used_before_is_refused():
    x, wave = (points(16, 2) + 1e4).float(), Wave(1e4)
    dudx.evaluate(wave, x, D(0), FD(0.5))
    with pytest.raises(dudx.errors.UnsupportedError):
        dudx.evaluate(wave, x, D(0), FD(1e-3))


def test_in_double_precision_it_is_right():
    x = points(16, 2) + 1e6
    found = dudx.evaluate(Wave(1e6), x, D(0), FD(1e-3))
    torch.testing.assert_close(found, Wave(1e6).derivatives(x)["first"], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("residual", [lambda u: u.t + u * u.x, lambda u: (u.x * u).x])
def test_residuals_and_nested_derivatives_are_refused(residual):
    x = (points(16, 2) + 1e6).float()
    equation = dudx.Residual(residual, ("x", "t"))
    for step in (equation, equation.loss):
        with pytest.raises(dudx.errors.UnsupportedError, match="too small for these points"):
            step(mlp().float(), x, FD(1e-2))


def test_isolated_networks_are_refused():
    model, x = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 1)), points(16, 2)
    x = (x + 1e6).float()
    with pytest.raises(dudx.errors.UnsupportedError, match="too small for these points"):
        dudx.evaluate(dudx.isolate(model, x), x, D(0), FD(1e-2))


def test_generators_stay_where_they_are():
    """The check draws no numbers: a random step is what it would be without it."""
    x, model = points(16, 2), mlp()
    torch.manual_seed(0)
    first = dudx.evaluate(model, x, D(0), SFD((1e-2, 1e-1)))
    torch.manual_seed(0)
    assert torch.equal(first, dudx.evaluate(model, x, D(0), SFD((1e-2, 1e-1))))
    assert math.isfinite(float(first.sum()))


@pytest.mark.parametrize("engine", every_engine(0.02, 2).values(), ids=every_engine(0.02, 2))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_usual_steps_are_not_refused(engine, dtype):
    x, model = points(64, 2).to(dtype), mlp().to(dtype)
    dudx.evaluate(model, x, [D(0), D(0, 1), Laplacian()], engine)
    dudx.evaluate(model, 10 * x, [D(0), D(0, 1), Laplacian()], engine)
