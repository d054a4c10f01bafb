"""Engines calibrated for the operators asked of them: a step for all orders, one for each, random ones."""

import copy
import math
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
import torch
from helpers import EXACT, SMOOTH, mlp, points, rms

from dudx import AD, EFD, FD, SFD, Along, D, Laplacian, Residual, evaluate, find_eps
from dudx.errors import CalibrationWarning


@pytest.fixture(scope="module")
def model():
    return mlp()


@pytest.fixture(scope="module")
def x():
    return points(100, 2)


BURGERS = [D(), D(0), D(1) - 0.01 * D(0, 0)]


def test_one_step_is_the_geometric_mean_of_the_orders_that_occur(model, x):
    engine = FD().calibrated(model, x, BURGERS)
    assert set(engine.calibrations) == {1, 2}
    first, second = engine.calibrations[1].step, engine.calibrations[2].step
    assert engine.step == pytest.approx(math.sqrt(first * second))
    poisson = FD().calibrated(model, x, Laplacian())
    assert set(poisson.calibrations) == {2}
    assert poisson.step == pytest.approx(poisson.calibrations[2].step)
    third = FD().calibrated(model, x, [D(0), D(0, 0), D(0, 0, 1)])
    assert third.step == pytest.approx(math.prod(c.step for c in third.calibrations.values()) ** (1 / 3))


def test_a_step_for_each_order(model, x):
    engine = EFD().calibrated(model, x, BURGERS)
    assert engine.steps == {1: engine.calibrations[1].step, 2: engine.calibrations[2].step}
    assert engine.steps[1] < engine.steps[2]
    assert EFD().calibrated(model, x, Laplacian()).steps.keys() == {2}


@pytest.mark.parametrize(
    ("operators", "axes"),
    [(BURGERS, {1: [0, 1], 2: [0]}), ([Laplacian()], {1: [0, 1], 2: [0, 1]}), ([D(0)], {1: [0], 2: [0, 1]})],
    ids=["Burgers", "Poisson", "gradient"],
)
def test_random_steps_lie_between_the_first_and_second_order_whatever_occurs(model, x, operators, axes):
    engine = SFD().calibrated(model, x, operators)
    # An order that does not occur is searched along all axes.
    assert engine.steps == {order: find_eps(model, x, order, axes=axes[order]).step for order in (1, 2)}
    used = engine.steps_for([2], x)[2]
    assert used.min() >= engine.steps[1] * (1 - 1e-6)
    assert used.max() <= engine.steps[2] * (1 + 1e-6)


def test_random_steps_reach_as_far_as_higher_orders(model, x):
    engine = SFD().calibrated(model, x, [D(0, 0, 0, 0)])
    assert engine.steps.keys() == {1, 2, 4}


@pytest.mark.parametrize("name", EXACT)
def test_exact_engines_have_nothing_to_calibrate(name, model, x):
    assert EXACT[name].calibrated(model, x, BURGERS) is EXACT[name]


UNSET = {"FD": FD(), "EFD": EFD(), "SFD": SFD()}


@pytest.mark.parametrize("engine", UNSET.values(), ids=UNSET)
def test_the_engine_itself_does_not_change(engine, model, x):
    before = copy.deepcopy(engine)
    calibrated = engine.calibrated(model, x, BURGERS)
    assert calibrated is not engine
    assert calibrated != engine
    assert type(calibrated) is type(engine)
    assert engine == before
    assert engine.calibrations == {}
    with pytest.raises(FrozenInstanceError):
        calibrated.accuracy = 4


@pytest.mark.parametrize("engine", UNSET.values(), ids=UNSET)
def test_values_alone_need_no_calibration(engine, model, x):
    assert engine.calibrated(model, x, D()) == engine


@pytest.mark.parametrize("engine", UNSET.values(), ids=UNSET)
def test_other_settings_survive(engine, model, x):
    engine = type(engine)(accuracy=4, coupled="ignore")
    calibrated = engine.calibrated(model, x, BURGERS)
    assert calibrated.accuracy == 4
    assert calibrated.coupled == "ignore"
    np.testing.assert_allclose(calibrated.calibrations[1].rmse, find_eps(model, x, 1, accuracy=4).rmse, rtol=1e-9)


def test_only_the_axes_of_the_operators_are_searched():
    def model(x):
        return torch.sin(x[:, :1]) + torch.sin(20 * x[:, 1:])

    x = points(100, 2)
    slow, fast = (EFD().calibrated(model, x, [D(axis), D(axis, axis)]) for axis in (0, 1))
    assert slow.steps[1] > 5 * fast.steps[1]
    assert slow.steps[2] > 5 * fast.steps[2]
    # A direction may point anywhere.
    along = EFD().calibrated(model, x, Along(torch.ones_like(x)))
    assert along.steps[1] == find_eps(model, x, 1).step


def test_keywords_go_to_the_search(model, x):
    engine = FD().calibrated(model, x, D(0), candidates=13, smallest=1e-7, largest=1e-2, reference="differences")
    found = engine.calibrations[1]
    assert found.reference == "differences"
    np.testing.assert_allclose(found.steps, np.geomspace(1e-7, 1e-2, 13))


def test_the_edge_is_reported_by_engines_too(model, x):
    with pytest.warns(CalibrationWarning):
        FD().calibrated(model, x, D(0), smallest=1e-2, largest=1e-1)


# The steps of the two orders are a factor of about 25 apart. One between them is off by 5 from either, random ones by
# up to 25, and the error goes with the square of that.
@pytest.mark.parametrize(("name", "factor"), [("EFD", 1.01), ("FD", 5**2 * 4), ("SFD", 25**2 * 4)])
def test_calibrated_engines_are_close_to_the_best_they_can_be(name, factor):
    f, x = SMOOTH["2d"], points(300, 2)
    engine = UNSET[name].calibrated(f, x, [D(0), D(0, 0)])
    for operator, axes in ((D(0), (0,)), (D(0, 0), (0, 0))):
        error = rms(evaluate(f, x, operator, engine) - f.partial(x, *axes))
        best = engine.calibrations[len(axes)].rmse.min()
        assert error <= factor * best


def test_a_residual_knows_what_to_calibrate_for(model, x):
    residual = Residual(lambda u: u.t + u * u.x - 0.01 * u.xx, ("x", "t"))
    engine = EFD().calibrated(model, x, residual.operators(x))
    torch.testing.assert_close(residual(model, x, engine), residual(model, x, AD()), rtol=1e-6, atol=1e-8)
