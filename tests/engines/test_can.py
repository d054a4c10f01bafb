"""Coupled automatic-numerical differentiation."""

import pickle

import numpy as np
import pytest
import torch
from helpers import SMOOTH, Counted, Sine, mlp, parameter_gradients, points, rms
from operator_cases import vectors

from dudx import AD, CAN, Along, D, Laplacian, Residual, Taylor, evaluate
from dudx.errors import InputError, UnsupportedError

ORDERS = {"first": 2, "second": 4, "along": 2, "twice along": 4, "laplacian": 4}


@pytest.mark.parametrize("scheme", ["central", "backward", "forward"])
def test_it_converges_at_its_order(scheme):
    f, x = SMOOTH["2d-vector"], points(30, 2)
    v = vectors(x)
    v[3] = 0
    operators = [D(0), D(1, 1), Along(v), Along(v, 2), Laplacian()]
    truths = [f.partial(x, 0), f.partial(x, 1, 1), f.along(x, v, 1), f.along(x, v, 2), f.laplacian(x)]
    steps, errors = np.geomspace(0.05, 0.2, 3), []
    for h in steps:
        found = evaluate(f, x, operators, CAN(h, scheme))
        errors.append([rms((a - b).detach()) for a, b in zip(found, truths, strict=True)])
        assert all(value[3].abs().sum() == 0 for value in found[2:4])
    for column, (name, order) in zip(zip(*errors, strict=True), ORDERS.items(), strict=True):
        assert np.polyfit(np.log(steps), np.log(column), 1)[0] == pytest.approx(order, abs=0.25), name


@pytest.mark.parametrize(("scheme", "constant"), [("central", 1 / 24), ("backward", -1 / 12), ("forward", -1 / 12)])
def test_the_error_is_the_one_that_is_documented(scheme, constant):
    wave, h = Sine(1.0, 0.3), 1e-2
    x = points(20, 1)
    error = evaluate(lambda x: wave(x), x, D(0), CAN(h, scheme)) - wave(x, 1)
    torch.testing.assert_close(error, constant * h**2 * wave(x, 3), rtol=0, atol=2e-7)  # h³/24 of the next term


@pytest.mark.parametrize("inner", [AD(), Taylor()], ids=["AD", "Taylor"])
def test_parameter_gradients_are_those_of_the_formula(inner):
    network, x, h = mlp(), points(9, 2), 0.05
    residual = Residual(lambda u: u.t + u * u.x - 0.1 * u.xx, ("x", "t"))
    engine = CAN(h, "backward", inner)
    found = residual(network, x, engine)
    e = torch.eye(2, dtype=x.dtype)

    def at(shift, axis):
        return network(x + shift), evaluate(network, x + shift, D(axis), AD())

    (u, ux), (uw, uxw), (ue, uxe) = (at(k * h * e[0], 0) for k in (0, -1, 1))
    (_, ut), (us, uts) = (at(k * h * e[1], 1) for k in (0, -1))
    by_hand = (
        (u - us) / h + (ut - uts) / 2
        + u * ((u - uw) / h + (ux - uxw) / 2)
        - 0.1 * (2 * (ue - 2 * u + uw) / h**2 - (uxe - uxw) / (2 * h))
    )  # fmt: skip
    torch.testing.assert_close(found, by_hand)
    gradients = [parameter_gradients(r.square().mean(), network) for r in (found, by_hand)]
    torch.testing.assert_close(*gradients)
    _, jacobian = residual.jacobian(network, x, engine)
    torch.testing.assert_close(jacobian, torch.stack([parameter_gradients(r, network) for r in by_hand.flatten()]))


def test_neighbours_are_shared_and_pass_together():
    model, x = Counted(mlp()), points(20, 2)
    residual = Residual(lambda u: u.t + u * u.x - 0.1 * u.xx, ("x", "t"))
    residual(model, x, CAN(0.1, inner=AD(coupled="ignore")))
    assert model.rows == [5 * 20]
    assert CAN().rows(x, residual.operators(x)).at_once == 5 * AD().rows(x, [D(0)]).at_once
    assert pickle.loads(pickle.dumps(CAN(0.1))) == CAN(0.1)


def test_what_it_cannot_do_is_one_sentence():
    f, x = SMOOTH["2d"], points(3, 2)
    for operator in (D(0, 1), D(0, 0, 0), Along(x, 3)):
        with pytest.raises(UnsupportedError, match=r"use dudx.AD\(\)"):
            evaluate(f, x, operator, CAN())
    with pytest.raises(InputError, match="must be one of"):
        CAN(scheme="upwind")
    with pytest.raises(InputError, match="positive"):
        CAN(0.0)
    with pytest.raises(InputError, match="an engine"):
        CAN(inner="ad")
    torch.testing.assert_close(evaluate(f, x, 2 * D(), CAN()), 2 * f(x))
    assert evaluate(f, x, 0 * D(0), CAN()).abs().sum() == 0
