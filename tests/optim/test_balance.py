"""Weights of terms from the lengths of their rows, and residuals that count by their size."""

from __future__ import annotations

import pytest
import torch
from helpers import mlp, points
from poisson_square import POISSON, poisson_terms, square
from torch import nn

import dudx
from dudx.optim import Balance, FunctionTerm, LevenbergMarquardt, Term, jacobian


@pytest.mark.parametrize("by", ["mean", "median"])
def test_weights_are_one_over_the_rows_squared_lengths(by):
    model, (inside, edge) = mlp(width=6), square(50, 31)
    terms = poisson_terms(model, dudx.Taylor(), inside, edge, (None, None))
    optimizer = LevenbergMarquardt(model.parameters(), balance=Balance(rate=0.3, by=by))
    expected = []
    for term in terms:
        squares = jacobian(term.residual, model, term.x, term.engine, **term.data)[1].square().sum(1)
        expected.append(1 / float(getattr(squares, by)()))
    optimizer.step(terms)
    assert [w for of_term in optimizer.last.weights for w in of_term] == pytest.approx(expected, rel=1e-9)
    optimizer.step(terms)
    assert [w for of_term in optimizer.last.weights for w in of_term] != pytest.approx(expected, rel=1e-6)


def test_weights_for_any_optimizer():
    model, (inside, edge) = mlp(width=6), square(50, 30)
    terms = poisson_terms(model, dudx.Taylor(), inside, edge, (None, 3.0))
    squares = jacobian(POISSON, model, inside, dudx.AD(), **terms[0].data)[1].square().sum(1)
    ((first,), (second,)) = Balance().weights(terms, list(model.parameters()))
    assert first == pytest.approx(1 / float(squares.mean()), rel=1e-9)
    assert second == 3.0


def test_tame_residuals_count_by_their_size():
    """A step on a linear problem is least squares with rows divided by half of 1 + size / mean size."""
    a, target = points(30, 3, seed=3), points(30, 1, seed=4)[:, 0]
    target[7] = 50.0
    theta = nn.Parameter(torch.zeros(3, dtype=torch.float64))
    term = FunctionTerm(lambda: a @ theta - target)
    term.tame = True
    LevenbergMarquardt([theta], damping=1e-12, acceleration=False).step([term])
    factors = 1 / (0.5 + 0.5 * target.abs() / target.abs().mean())
    wanted = torch.linalg.lstsq(factors[:, None] * a, (factors * target)[:, None]).solution[:, 0]
    assert torch.allclose(theta.detach(), wanted, rtol=1e-6)
    plain = torch.linalg.lstsq(a, target[:, None]).solution[:, 0]
    assert not torch.allclose(wanted, plain, rtol=1e-1)


def test_fixed_weights_stay():
    model, (inside, edge) = mlp(width=6), square(50, 30)
    optimizer = LevenbergMarquardt(model.parameters())
    optimizer.step(poisson_terms(model, dudx.Taylor(), inside, edge, (2.0, None)))
    assert optimizer.last.weights[0] == (2.0,)
    assert optimizer.last.weights[1][0] != 1.0


def test_each_equation_of_a_term_has_a_weight_of_its_own():
    model, (inside, _) = mlp(outputs=2, width=6), square(30, 4)
    system = dudx.Residual(lambda u, v: (100 * u.x + v, v - u), ("x", "y"))
    optimizer = LevenbergMarquardt(model.parameters())
    optimizer.step([Term(system, model, inside, dudx.Taylor())])
    ((first, second),) = optimizer.last.weights
    assert second > 100 * first
