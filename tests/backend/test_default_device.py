"""A script may have set another default device: everything follows the network and the points."""

from __future__ import annotations

import pytest
import torch
from helpers import every_engine, mlp, points
from poisson_square import poisson_terms, square
from torch import nn

import dudx
from dudx import D, Laplacian, Residual, Taylor, evaluate
from dudx.lab.problems import problem
from dudx.lab.run.settings import make_settings
from dudx.lab.run.training import train
from dudx.optim import LevenbergMarquardt, SelfScaledBroyden

ENGINES = {**every_engine(0.02, 4), "STDE": dudx.STDE(4)}
HEAT = Residual(lambda u, x, y: u.y - torch.sin(x) * u.xx, ("x", "y"))
NORM = nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 1)).double()


@pytest.fixture
def elsewhere():
    """Whatever is made without a device has no numbers."""
    torch.set_default_device("meta")
    yield
    torch.set_default_device(None)


@pytest.fixture
def here():
    return mlp(2, 1, width=8), points(12, 2)


@pytest.mark.parametrize("name", ENGINES)
def test_engines(name, here, elsewhere):
    model, x = here
    for value in evaluate(model, x, [D(), D(0), D(0, 1), Laplacian()], ENGINES[name]):
        assert value.isfinite().all()
    assert HEAT.loss(model, x, ENGINES[name]).isfinite()


@pytest.mark.parametrize("engine", [dudx.FD(), dudx.EFD(), dudx.SFD()], ids=repr)
def test_calibration(engine, here, elsewhere):
    model, x = here
    assert evaluate(model, x, D(0), engine.calibrated(model, x, [D(0), Laplacian()])).isfinite().all()


WAYS = {
    "jacobian": lambda model, x: HEAT.jacobian(model, x, Taylor())[1],
    "traced": lambda model, x: HEAT.compiled().loss(model, x, Taylor()),
    "isolated": lambda model, x: evaluate(dudx.isolate(NORM, x), x, D(0), Taylor()),
    "isolated, some": lambda model, x: evaluate(dudx.isolate(NORM, x).at([1, 3]), x[[1, 3]], D(0), Taylor()),
    "frozen": lambda model, x: evaluate(dudx.frozen(NORM, x), x[:5], D(0), dudx.FD(1e-2)),
    "matrix": lambda model, x: Residual(lambda u: u.second([[2.0, 1.0], [1.0, 3.0]]), ("x", "y"))(model, x, Taylor()),
    "network beside": lambda model, x: Residual(lambda u, k: (k * u.x).x, ("x", "y"), networks={"k": model})(
        model, x, Taylor()
    ),
    "ensemble": lambda model, x: HEAT(dudx.ensemble([model, model]), x, Taylor()),
    "slices": lambda model, x: dudx.backward(lambda x: HEAT.loss(model, x, Taylor()), x, 4),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.usefixtures("only_traced")
def test_the_rest_of_the_library(way, here, elsewhere):
    assert WAYS[way](*here).isfinite().all()


def test_advice(here, elsewhere):
    model, x = here
    assert dudx.explain(NORM, x)
    assert dudx.recommend(model, x, [Laplacian()])


@pytest.mark.parametrize("solver", ["normal", "kernel", "free"])
def test_second_order(solver, here, request):
    model = here[0]
    terms = poisson_terms(model, Taylor(), *square(60, 20))
    request.getfixturevalue("elsewhere")
    optimizer = LevenbergMarquardt(model.parameters(), solver=solver)
    first = float(optimizer.step(terms))
    assert float(optimizer.step(terms)) < first


def test_quasi_newton(here, elsewhere):
    model, x = here
    optimizer = SelfScaledBroyden(model.parameters())

    def closure():
        optimizer.zero_grad()
        loss = HEAT.loss(model, x, Taylor())
        loss.backward()
        return loss

    first = float(optimizer.step(closure))
    for _ in range(4):
        last = float(optimizer.step(closure))
    assert last < first


def test_the_laboratory_says_what_to_do(tmp_path, request):
    settings = make_settings("poisson", "cpu", epochs=1)
    stated = problem("poisson")
    request.getfixturevalue("elsewhere")
    for do in (lambda: problem("poisson"), lambda: train(settings, tmp_path / "run", problem=stated)):
        with pytest.raises(dudx.errors.InputError, match=r"set_default_device\(\"cpu\"\)"):
            do()
    assert not (tmp_path / "run").exists()
