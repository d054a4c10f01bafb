"""Requests of residuals: the fewest possible operators, however the equation is written."""

import itertools

import numpy as np
import pytest
import torch
from by_hand import asked, close, gradient
from helpers import mlp, points

from dudx import AD, Along, D, Laplacian, Residual, evaluate

NU = 0.01 / np.pi


def test_a_sum_of_second_derivatives_is_one_request_for_the_laplacian():
    assert asked(lambda u: u.xx + u.yy, ("x", "y")) == [Laplacian().expanded(2)]


@pytest.mark.parametrize(
    "heat",
    [
        lambda u: u.t - 0.5 * u.xx,
        lambda u: -0.5 * u.xx + u.t,
        lambda u: u.t - u.xx / 2,
        lambda u: -(u.xx * 0.5 - u.t),
        lambda u: u.d("t") - 0.5 * u.d("x", "x"),
        lambda u: u.t - 0.5 * u.laplacian("x"),
        lambda u: u.t - (u.x * 0.5).x,
        lambda u: (u.t + 1) - 0.5 * u.xx - 1,
    ],
)
def test_the_whole_of_a_linear_equation_is_one_request(heat):
    assert asked(heat) == [D(1) - 0.5 * D(0, 0)]


TERMS = {
    "u.t": lambda u: u.t,
    "u * u.x": lambda u: u * u.x,
    "- nu * u.xx": lambda u: -NU * u.xx,
}
SPELLINGS = {
    "as usual": lambda u: u.t + u * u.x - NU * u.xx,
    "number behind": lambda u: u.t + u * u.x - u.xx * NU,
    "parentheses": lambda u: u.t + (u * u.x - NU * u.xx),
    "factors swapped": lambda u: (u.t - NU * u.xx) + u.x * u,
    "subtraction of a difference": lambda u: u.t - (NU * u.xx - u * u.x),
    "negated": lambda u: -(NU * u.xx - u * u.x - u.t),
    "numpy number": lambda u: u.t + u * u.x - np.float64(NU) * u.xx,
    "division": lambda u: u.t + u * u.x - u.xx / (1 / NU),
    "torch functions": lambda u: torch.sub(torch.add(u.t, torch.mul(u, u.x)), NU * u.xx),
} | {
    " + ".join(names): lambda u, names=names: TERMS[names[0]](u) + TERMS[names[1]](u) + TERMS[names[2]](u)
    for names in itertools.permutations(TERMS)
}


@pytest.mark.parametrize("burgers", SPELLINGS.values(), ids=SPELLINGS)
def test_burgers_asks_for_the_same_three_operators_however_it_is_written(burgers):
    residual = Residual(lambda u: burgers(u), ("x", "t"))
    requests = residual.operators(points(6, 2))
    assert len(requests) == 3
    assert {D(), D(0)} < set(requests)
    (linear,) = set(requests) - {D(), D(0)}
    # 1 / (1 / nu) need not be nu in its last digit.
    assert dict(linear.terms) == pytest.approx(dict((D(1) - NU * D(0, 0)).terms), rel=1e-15)


@pytest.mark.parametrize("burgers", SPELLINGS.values(), ids=SPELLINGS)
def test_burgers_has_the_same_values_however_it_is_written(burgers):
    model, x = mlp(), points(8, 2).requires_grad_()
    u = model(x)
    ux, ut = gradient(u, x)
    expected = ut + u * ux - NU * gradient(ux, x)[0]
    close(Residual(lambda u: burgers(u), ("x", "t"))(model, x, AD()), expected)


def test_what_is_asked_for_twice_is_requested_once():
    assert asked(lambda u: u * u.x + torch.sin(u) * u.x) == [D(), D(0)]


n = torch.ones(6, 2, dtype=torch.float64)
REQUESTS = [
    ("d", lambda u: u.d("x", "x", "t"), [D(0, 0, 1)]),
    ("attribute", lambda u: u.xxt, [D(0, 0, 1)]),
    ("names in any order", lambda u: u.txx, [D(0, 0, 1)]),
    ("chain", lambda u: u.x.x.t, [D(0, 0, 1)]),
    ("d of a derivative", lambda u: u.x.d("x", "t"), [D(0, 0, 1)]),
    ("d of nothing", lambda u: u.d(), [D()]),
    ("laplacian of some", lambda u: u.laplacian("x", "t"), [D(0, 0) + D(1, 1)]),
    ("laplacian of one", lambda u: u.laplacian("t"), [D(1, 1)]),
    ("laplacian of all", lambda u: u.laplacian(), [D(0, 0) + D(1, 1)]),
    ("biharmonic", lambda u: (u.xx + u.tt).laplacian(), [(Laplacian() @ Laplacian()).expanded(2)]),
    ("biharmonic twice", lambda u: u.laplacian().laplacian(), [(Laplacian() @ Laplacian()).expanded(2)]),
    ("derivative of a sum", lambda u: (2 * u + u.x - 3).t, [2 * D(1) + D(0, 1)]),
    ("numbers vanish", lambda u: u.x + (u + 4).t, [D(0) + D(1)]),
    ("plus sign", lambda u: +u.x, [D(0)]),
    ("number on the left", lambda u: 0 - u.x, [-D(0)]),
    ("what cancels", lambda u: u.t - u.xx + u.xx, [D(1)]),
    ("along", lambda u: u.along(n), [Along(n)]),
    ("along of a multiple", lambda u: (2 * u).along(n, order=2), [2 * Along(n, 2)]),
    ("Robin", lambda u: u.along(n) + 0.5 * u, [Along(n) + 0.5 * D()]),
]


@pytest.mark.parametrize(("function", "expected"), [case[1:] for case in REQUESTS], ids=[case[0] for case in REQUESTS])
def test_requests(function, expected):
    assert asked(function) == expected


@pytest.mark.parametrize(("function", "expected"), [case[1:] for case in REQUESTS], ids=[case[0] for case in REQUESTS])
def test_requests_are_what_is_evaluated(function, expected):
    model, x = mlp(), points(6, 2)
    (value,) = evaluate(model, x, expected, AD())
    close(Residual(function, ("x", "t"))(model, x, AD()), value)
