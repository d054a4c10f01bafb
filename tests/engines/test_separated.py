"""Separable networks, and their derivatives axis by axis on a grid."""

import pickle

import pytest
import torch
from helpers import mlp, parameter_gradients, points
from operator_cases import vectors

from dudx import AD, FD, Along, D, Laplacian, Residual, Separated, Taylor, evaluate
from dudx.errors import InputError, UnsupportedError
from dudx.lab.run.networks.separable import Separable


def network(dimensions=2, outputs=1, **more):
    torch.manual_seed(0)
    return Separable(dimensions, outputs, width=6, depth=2, **more).double()


def axes(*counts):
    return [torch.linspace(-1, 1, n, dtype=torch.float64) + 0.01 * i for i, n in enumerate(counts)]


@pytest.mark.parametrize("counts", [(7,), (4, 5), (3, 4, 2), (2, 3, 2, 3)], ids=len)
@pytest.mark.parametrize("outputs", [1, 2])
def test_it_agrees_with_other_engines(counts, outputs):
    model, engine = network(len(counts), outputs), Separated(axes(*counts))
    x, last = engine.points, len(counts) - 1
    v = vectors(x)
    request = [D(), D(0), Laplacian(), D(0, last), D(0, 0, last) - 2 * D(last), Along(v, 2), 0 * D(), Along(v) + D()]
    found = evaluate(model, x, request, engine)
    for other in (AD(), Taylor()):
        torch.testing.assert_close(list(found), list(evaluate(model, x, request, other)), rtol=1e-9, atol=1e-9)
    close = evaluate(model, x, request[:3], Separated(axes(*counts), FD(0.02, 6)))
    torch.testing.assert_close(list(close), list(found[:3]), rtol=1e-6, atol=1e-6)


def test_parameter_gradients_agree_and_residuals_stay_as_they_are():
    model, engine = network(3, 2, bounds=((-1.0, -1.0, 0.0), (1.0, 2.0, 3.0))), Separated(axes(3, 4, 5))
    residual = Residual(lambda u, p: (u.t + u * p.x - 0.1 * u.yy, p.d("x", "y") + u.laplacian()), ("x", "y", "t"))
    ours, exact = (
        parameter_gradients(sum(r.square().mean() for r in residual(model, engine.points, e)), model)
        for e in (engine, AD())
    )
    torch.testing.assert_close(ours, exact, rtol=1e-8, atol=1e-10)


def test_a_grid_costs_as_many_rows_as_its_axes_have():
    model, engine = network(3), Separated(axes(16, 17, 18))
    rows = []
    for factor in model.factors:
        factor.register_forward_hook(lambda module, inputs, output: rows.append(output.shape[-2]))
    x = engine.points
    for _ in range(2):  # the first two times it is looked at whether samples influence each other
        evaluate(model, x, Laplacian(), engine)
    rows.clear()
    evaluate(model, x, Laplacian(), engine)
    assert sum(rows) <= 16 + 17 + 18 + 2 * 3 * 8  # and the rows at which the network is checked
    assert engine.rows(x, [Laplacian()]).at_once == 1
    copy = pickle.loads(pickle.dumps(engine))
    assert torch.equal(copy.points, x)


class Wrapped(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inside = network()
        self.factors = self.inside.factors

    def forward(self, x):
        return self.inside(x) * (1 - x[:, :1] ** 2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda e: evaluate(mlp(), e.points, D(0), e), "a list `factors`"),
        (lambda e: evaluate(Wrapped(), e.points, D(0), e), "not the sum of the products"),
        (lambda e: evaluate(network(), points(12, 2), D(0), e), "in their order"),
        (lambda e: Separated([]), "coordinates along each axis"),
        (lambda e: Separated([torch.rand(3, 2)]), "coordinates along each axis"),
        (lambda e: Separated(axes(3), "ad"), "by an engine"),
    ],
)
def test_what_cannot_be_is_one_sentence(call, message):
    with pytest.raises(InputError, match=message):
        call(Separated(axes(3, 4)))
    with pytest.raises(UnsupportedError, match="fixed"):
        evaluate(network(), Separated(axes(3, 4)).points.requires_grad_(), D(0), Separated(axes(3, 4)))
