"""Expressions that mix the samples of a batch: neither differentiated nor evaluated slice by slice."""

import pytest
import torch
from by_hand import close, gradient
from helpers import mlp, points

import dudx
from dudx import AD, Residual
from dudx.errors import InputError


@pytest.fixture
def model():
    return mlp()


@pytest.fixture
def x():
    return points(8, 2).requires_grad_()


MIXING = {
    "mean": lambda u: u - u.mean(),
    "mean of a square": lambda u: u * (u * u).mean(),
    "cumsum": lambda u: u.cumsum(0),
    "roll": lambda u: u.roll(1, 0),
    "flip": lambda u: u * u.flip(0),
    "sort": lambda u: u.sort(0).values,
    "matmul": lambda u: u @ (u.T @ u),
    "first": lambda u: u - u[0:1],
    "softmax": lambda u: torch.softmax(u * u, 0),
    "norm": lambda u: u / u.norm(),
    "maximum": lambda u: u / u.max(),
    "halves": lambda u: torch.cat([u[4:], u[:4]]),
}


@pytest.mark.parametrize("count", [2, 8, 500])
@pytest.mark.parametrize("mix", [m for name, m in MIXING.items() if name != "halves"])
def test_an_expression_that_mixes_samples_is_not_differentiated(model, mix, count) -> None:
    with pytest.raises(InputError, match="mixes the samples"):
        Residual(lambda u: (mix(u) * u).x, ("x", "y"))(model, points(count, 2), AD())


def test_permuted_parts_are_not_differentiated(model) -> None:
    with pytest.raises(InputError, match="mixes the samples"):
        Residual(lambda u: (MIXING["halves"](u) * u).x, ("x", "y"))(model, points(8, 2), AD())


@pytest.mark.parametrize("name", ["mean", "cumsum", "roll", "flip"])
def test_samples_may_be_mixed_where_nothing_is_differentiated(model, x, name) -> None:
    close(Residual(lambda u: MIXING[name](u), ("x", "y"))(model, x, AD()), MIXING[name](model(x)))


@pytest.mark.parametrize("compile", [False, True])
@pytest.mark.parametrize("name", [name for name in MIXING if name != "halves"])
def test_they_are_not_evaluated_in_slices(model, name, compile) -> None:
    """A slice has another mean than the batch."""
    residual = Residual(lambda u: u.x + MIXING[name](u), ("x", "y"), compile=compile)
    with pytest.raises(InputError, match=r"slices of the batch mixes the samples.*whole batch"):
        dudx.backward(lambda part: residual.loss(model, part, AD()), points(8, 2), chunk=4)
    dudx.backward(lambda part: residual.loss(model, part, AD()), points(8, 2), chunk=8)


@pytest.mark.parametrize("engine", [AD(), dudx.Taylor(), dudx.FD(1e-2)], ids=str)
def test_values_of_each_point_are_evaluated_in_slices(model, engine) -> None:
    """Also several of them, with data, and integrals, which are sums over the network and not over the batch."""
    residual = Residual(
        lambda u, x, n: (u.along(n) + u.detach(), u.x - u.integral({"y": (0, 1)}) * x), ("x", "y"), data=("n",)
    )
    x, n = points(9, 2), points(9, 2, seed=1)
    whole = residual.loss(model, x, engine, n=n)
    parts = dudx.backward(lambda x, n: residual.loss(model, x, engine, n=n), (x, n), chunk=4)
    close(parts, whole.detach())


weights = torch.tensor([[1.0, 2.0], [3.0, -1.0]], dtype=torch.float64)
APART = {
    "stack and sum": lambda u, p: torch.stack((u, u * p[:, :1])).square().sum(0),
    "cat and norm": lambda u, p: torch.cat((u, p), 1).norm(dim=1, keepdim=True),
    "softmax of columns": lambda u, p: u * torch.softmax(p, 1)[:, :1],
    "cumsum of columns": lambda u, p: u * p.cumsum(1)[:, 1:],
    "matrix": lambda u, p: u * (p @ weights).sum(1, keepdim=True),
    "transposed twice": lambda u, p: (u * u).T.T,
    "where": lambda u, p: torch.where(p[:, :1] > 0.5, u * u, u),
    "logarithm": lambda u, p: torch.log(2 + u * u),
    "inverse cosine": lambda u, p: torch.acos(0.5 * torch.tanh(u)),
    "square root near its end": lambda u, p: torch.sqrt(1 + u.square() - 0.5),
    "clamp": lambda u, p: torch.clamp(u * u, max=10.0),
    "flattened": lambda u, p: (u * u)[:, 0].unsqueeze(1),
    "mean of columns": lambda u, p: u * p.mean(1, keepdim=True),
}


@pytest.mark.parametrize("expression", APART.values(), ids=APART)
def test_an_expression_of_each_point_is_differentiated(model, x, expression) -> None:
    found = Residual(lambda u, points: expression(u, points).x, ("x", "y"))(model, x, AD())
    close(found, gradient(expression(model(x), x), x)[0])


def test_the_check_leaves_random_numbers_alone(model) -> None:
    torch.manual_seed(3)
    expected = torch.rand(3)
    torch.manual_seed(3)
    Residual(lambda u: (u * u).x, ("x", "y"))(model, points(8, 2), AD())
    assert torch.equal(torch.rand(3), expected)
