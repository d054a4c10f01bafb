"""Coupled networks are found and refused with both remedies; no other network is suspected."""

from dataclasses import replace

import pytest
import torch
from coupled_networks import COUPLED, UNCOUPLED, HiddenMean, between, made
from helpers import mlp, points, unchanged
from torch import nn

from dudx import AD, EFD, FD, SFD, CoupledModelError, D, Residual, coupled, evaluate

# -- who is coupled ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 3, 5, 40])
@pytest.mark.parametrize("name", COUPLED)
def test_coupled_networks_are_found(name, count):
    model = made(COUPLED, name)
    with unchanged(model):
        assert coupled(model, points(count, 2)) is True


@pytest.mark.parametrize("count", [1, 2, 3, 5, 40])
@pytest.mark.parametrize("name", UNCOUPLED)
def test_uncoupled_networks_are_not_suspected(name, count):
    model = made(UNCOUPLED, name)
    with unchanged(model):
        assert coupled(model, points(count, 2)) is False


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_rounding_is_not_taken_for_influence(dtype):
    x = points(40, 2, dtype)
    assert coupled(mlp(width=64).to(dtype), x) is False
    assert coupled(between(nn.LayerNorm(8)).to(dtype), x) is False
    assert coupled(lambda x: x + x.mean(0), x) is True


def test_one_variable():
    assert coupled(lambda x: torch.sin(x), points(8, 1)) is False
    assert coupled(lambda x: torch.sin(x) + x.mean(), points(8, 1)) is True


def test_influence_that_only_some_rows_have_is_found():
    assert coupled(lambda x: torch.cat([x[:1], x[:-1]]) * x, points(8, 2)) is True  # each on the one before
    assert coupled(lambda x: torch.cat([x[1:], x[-1:]]) * x, points(8, 2)) is True  # each on the one after
    assert coupled(lambda x: x * x.norm(dim=0).amax(), points(8, 2)) is True


def test_a_network_that_returns_nan_has_shown_no_influence():
    model = mlp()
    with torch.no_grad():
        model[0].weight[0, 0] = torch.nan
    assert coupled(model, points(8, 2)) is False
    assert coupled(lambda x: x.log(), points(8, 2)) is False


def test_the_points_and_their_order_do_not_matter():
    x = points(8, 2)
    before = x.clone()
    assert coupled(HiddenMean().double(), torch.zeros(8, 2, dtype=torch.float64)) is True
    assert coupled(HiddenMean().double(), x) is True
    assert torch.equal(x, before)


# -- refusal -----------------------------------------------------------------------------------------------------


REFUSING = {"AD": AD(), "FD": FD(1e-2), "EFD": EFD({1: 1e-2, 2: 1e-2}), "SFD": SFD((1e-2, 2e-2))}


@pytest.mark.parametrize("engine", REFUSING.values(), ids=REFUSING)
@pytest.mark.parametrize("name", COUPLED)
def test_engines_refuse_coupled_networks_and_name_both_remedies(name, engine):
    model = made(COUPLED, name)
    with unchanged(model), pytest.raises(CoupledModelError) as error:
        evaluate(model, points(8, 2), D(0), engine)
    assert "isolate(model, x)" in str(error.value)
    assert "PerSampleAD()" in str(error.value)


@pytest.mark.parametrize("name", UNCOUPLED)
def test_engines_accept_uncoupled_networks(name):
    model, x = made(UNCOUPLED, name), points(8, 2)
    ignoring = [replace(engine, coupled="ignore") for engine in REFUSING.values()]
    for engine, blind in zip(REFUSING.values(), ignoring, strict=True):
        values = []
        for each in (engine, blind):  # which differ in nothing but the look for coupling
            torch.manual_seed(0)  # of dropout, and of random steps
            values.append(evaluate(model, x, D(0), each))
        assert values[0].shape == (8, model(x).shape[1])
        torch.testing.assert_close(*values, rtol=1e-9, atol=1e-9, equal_nan=True)  # spectral norm goes on iterating


@pytest.mark.parametrize("engine", REFUSING.values(), ids=REFUSING)
def test_a_refused_network_stays_refused(engine):
    model, x = HiddenMean().double(), points(8, 2)
    for _ in range(6):
        with pytest.raises(CoupledModelError):
            evaluate(model, x, D(0), engine)


@pytest.mark.parametrize("name", REFUSING)
def test_coupling_can_be_ignored(name):
    engine = replace(REFUSING[name], coupled="ignore")
    value = evaluate(HiddenMean().double(), points(8, 2), D(0), engine)
    assert value.isfinite().all()


def test_what_ignoring_computes_is_the_derivative_of_the_sum():
    model, x = HiddenMean().double(), points(8, 2).requires_grad_()
    value = evaluate(model, x, D(1), AD(coupled="ignore"))
    (total,) = torch.autograd.grad(model(x).sum(), x)
    torch.testing.assert_close(value, total[:, 1:])


def test_residuals_refuse_too():
    with pytest.raises(CoupledModelError):
        Residual(lambda u: u.x, ("x", "t"))(HiddenMean().double(), points(8, 2), AD())


def test_the_names_of_a_networks_parts_do_not_matter():
    class Separable(nn.Sequential):
        def __init__(self):
            super().__init__()
            self.pointwise, self.norm, self.last = nn.Linear(2, 8), nn.BatchNorm1d(8), nn.Linear(8, 1)

    with pytest.raises(CoupledModelError):
        evaluate(Separable().double(), points(8, 2), [D(0)], AD())


def test_functions_are_probed_as_modules_are():
    def model(x):
        return x * x.mean()

    for engine in REFUSING.values():
        with pytest.raises(CoupledModelError):
            evaluate(model, points(8, 2), D(0), engine)
