"""Formulas as on paper: derivatives of computed expressions, against the same written out and against autograd."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from operator import add
from typing import Any

import pytest
import torch
from helpers import mlp, points
from torch import Tensor, nn

import dudx
from dudx import AD, FD, D, Residual, Taylor, evaluate
from dudx.engines.request import request_of
from dudx.errors import InputError

ENGINES = {"AD": AD(), "Taylor": Taylor()}


def by_autograd(formula: Callable[..., Tensor], model: nn.Module, x: Tensor) -> Tensor:
    """The formula with d(expression, axis) by nested autograd, for tensors."""
    x = x.detach().clone().requires_grad_()

    def d(value: Tensor, axis: int) -> Tensor:
        (slope,) = torch.autograd.grad(value.sum(), x, create_graph=True, materialize_grads=True)
        return slope[:, axis : axis + 1]

    return formula(model(x), x, d)


K = mlp(2, 1, seed=3)
SCALE = nn.Parameter(torch.tensor(1.3, dtype=torch.float64))

#: As on paper, and the same for autograd.
FORMULAS: dict[str, tuple[Callable[..., Any], Callable[..., Tensor]]] = {
    "coefficient of the inputs": (
        lambda u, x, y: ((1 + x**2 * torch.sin(y)) * u.x).x + ((1 + x**2 * torch.sin(y)) * u.y).y,
        lambda u, x, d: sum(d((1 + x[:, :1] ** 2 * torch.sin(x[:, 1:])) * d(u, i), i) for i in (0, 1)),
    ),
    "coefficient that jumps": (
        lambda u, x: (torch.where(x > 0, 1.0, 10.0) * u.x).x,
        lambda u, x, d: d(torch.where(x[:, :1] > 0, 1.0, 10.0) * d(u, 0), 0),
    ),
    "coefficient of the solution": (
        lambda u: (u * u.x).x + (torch.exp(-u) * u.y).y,
        lambda u, x, d: d(u * d(u, 0), 0) + d(torch.exp(-u) * d(u, 1), 1),
    ),
    "unknown constant": (
        lambda u: (SCALE * u * u.x).x - SCALE * u.yy,
        lambda u, x, d: d(SCALE * u * d(u, 0), 0) - SCALE * d(d(u, 1), 1),
    ),
    "minimal surface": (
        lambda u: dudx.div([p / (1 + u.x**2 + u.y**2) ** 0.5 for p in dudx.grad(u)]),
        lambda u, x, d: sum(d(d(u, i) / (1 + d(u, 0) ** 2 + d(u, 1) ** 2) ** 0.5, i) for i in (0, 1)),
    ),
    "p-Laplacian": (
        lambda u: dudx.div([(u.x**2 + u.y**2 + 0.1) ** 0.75 * p for p in dudx.grad(u)]),
        lambda u, x, d: sum(d((d(u, 0) ** 2 + d(u, 1) ** 2 + 0.1) ** 0.75 * d(u, i), i) for i in (0, 1)),
    ),
    "Monge–Ampère": (
        lambda u, x: u.xx * u.yy - u.xy**2 - torch.exp(x),
        lambda u, x, d: d(d(u, 0), 0) * d(d(u, 1), 1) - d(d(u, 0), 1) ** 2 - torch.exp(x[:, :1]),
    ),
    "twice": (
        lambda u, x: (x * u * u.x).xy + (u**3).laplacian(),
        lambda u, x, d: d(d(x[:, :1] * u * d(u, 0), 0), 1) + sum(d(d(u**3, i), i) for i in (0, 1)),
    ),
    "methods and quotients": (
        lambda u, y: ((u.x.square() + 1).log() / (2 + y.cos())).y + torch.atan2(u, 2 + u.x).x,
        lambda u, x, d: d((d(u, 0).square() + 1).log() / (2 + x[:, 1:].cos()), 1) + d(torch.atan2(u, 2 + d(u, 0)), 0),
    ),
    "a sum with a linear part": (
        lambda u, x: (2 * u.x + u * u - 3 * x).x,
        lambda u, x, d: d(2 * d(u, 0) + u * u - 3 * x[:, :1], 0),
    ),
    "derivative of an input": (
        lambda u, x, y: u + (x * x * y).x + (x * y).y,
        lambda u, x, d: u + 2 * x[:, :1] * x[:, 1:] + x[:, :1],
    ),
}


@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
@pytest.mark.parametrize("name", FORMULAS)
def test_a_formula_on_paper_is_what_autograd_says(name: str, engine: Any) -> None:
    model, x = mlp(2, 1), points(6, 2)
    written, tensors = FORMULAS[name]
    residual = Residual(written, inputs=("x", "y"))
    exact = by_autograd(tensors, model, x)
    parameters = [*model.parameters(), SCALE]
    for _ in range(2):  # recorded, and known
        ours = residual(model, x, engine)
        assert (ours - exact).abs().max() < 1e-11 * (1 + exact.abs().max())
        gradients = [
            torch.autograd.grad(r.square().mean(), parameters, retain_graph=True, materialize_grads=True)
            for r in (ours, exact)
        ]
        for a, b in zip(*gradients, strict=True):
            assert (a - b).abs().max() < 1e-10 * (1 + b.abs().max())


@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
def test_a_second_network_is_differentiated_with_the_first(engine: Any) -> None:
    model, x = mlp(2, 1), points(6, 2)
    residual = Residual(lambda u, k: (k * u.x).x + (k * u.y).y - 1, inputs=("x", "y"), networks={"k": K})
    exact = by_autograd(lambda u, x, d: sum(d(K(x) * d(u, i), i) for i in (0, 1)) - 1, model, x)
    parameters = [*model.parameters(), *K.parameters()]
    for _ in range(2):
        ours = residual(model, x, engine)
        assert (ours - exact).abs().max() < 1e-11 * (1 + exact.abs().max())
        for a, b in zip(
            *(
                torch.autograd.grad(r.square().mean(), parameters, retain_graph=True, materialize_grads=True)
                for r in (ours, exact)
            ),
            strict=True,
        ):
            assert (a - b).abs().max() < 1e-10 * (1 + b.abs().max())
    values, rows = residual.jacobian(model, x, engine)
    assert rows.shape == (6, sum(p.numel() for p in parameters))
    assert torch.allclose(values, exact.flatten())
    first = torch.autograd.grad(exact[0, 0], parameters, materialize_grads=True)
    assert torch.allclose(rows[0], torch.cat([g.flatten() for g in first]), atol=1e-10)


def test_differences_take_such_formulas_too() -> None:
    model, x = mlp(2, 1), points(6, 2)
    written, tensors = FORMULAS["coefficient of the solution"]
    ours = Residual(written, inputs=("x", "y"))(model, x, FD(1e-3, accuracy=4))
    assert (ours - by_autograd(tensors, model, x)).abs().max() < 1e-6


def test_curl_advection_and_divergence() -> None:
    model, x = mlp(3, 3), points(6, 3)
    inputs = ("x", "y", "z")
    of_curl = Residual(lambda u, v, w: dudx.div(dudx.curl((u, v, w))) + u, inputs=inputs)
    assert [repr(operator) for operator in of_curl.operators(x)] == ["D()"]  # it is zero before anything is computed
    carried = Residual(lambda u, v, w: dudx.advection((u, v, w), u * v), inputs=inputs)
    values, *slopes = evaluate(model, x, [D(), D(0), D(1), D(2)], AD())
    exact = sum(values[:, i] * (s[:, 0] * values[:, 1] + s[:, 1] * values[:, 0]) for i, s in enumerate(slopes))
    assert torch.allclose(carried(model, x, Taylor()).flatten(), exact)
    plane = Residual(lambda u, v, w: (dudx.curl((u, v), "x", "y"), dudx.div((u.x, u.y), "x", "y")), inputs=inputs)
    rotation, laplacian = plane(model, x, Taylor())
    assert torch.allclose(rotation.flatten(), slopes[0][:, 1] - slopes[1][:, 0])
    assert torch.allclose(laplacian, evaluate(model, x, dudx.Laplacian((0, 1)), AD())[:, :1])
    with pytest.raises(InputError, match=r"div got 2 components and 3 inputs \(x, y, z\)"):
        Residual(lambda u, v, w: dudx.div((u, v)), inputs=inputs)(model, x, Taylor())


def test_what_is_not_known_of_a_tensor_is_said() -> None:
    model, x = mlp(2, 1), points(6, 2)
    k = torch.rand(6, 1, dtype=torch.float64)
    with pytest.raises(InputError, match=r"one value a point.*networks="):
        Residual(lambda u, k: (k * u.x).x, inputs=("x", "y"), data=("k",))(model, x, Taylor(), k=k)
    with pytest.raises(InputError, match=r"one value a point"):
        Residual(lambda u: (u.x + k).x, inputs=("x", "y"))(model, x, Taylor())
    with pytest.raises(InputError, match="along a vector"):
        Residual(lambda u, n: (u * u).along(n), inputs=("x", "y"), data=("n",))(model, x, Taylor(), n=x)
    with pytest.raises(InputError, match=r"beside one for the model"):
        Residual(lambda u: u.x, inputs=("x", "y"), networks={"k": K})


# -- second derivatives with a matrix --------------------------------------------------------------------------------


def basket(dimensions: int) -> tuple[Tensor, Tensor]:
    """Correlations and volatilities of a basket of assets."""
    generator = torch.Generator().manual_seed(0)
    factors = torch.randn(dimensions, 4, dtype=torch.float64, generator=generator)
    covariance = factors @ factors.T + torch.eye(dimensions, dtype=torch.float64)
    scale = covariance.diagonal().rsqrt()
    return scale[:, None] * covariance * scale, 0.1 + 0.3 * torch.rand(
        dimensions, dtype=torch.float64, generator=generator
    )


def test_black_and_scholes_of_twenty_correlated_assets() -> None:
    """Pair by pair, and with the matrix at each point: the same numbers from a tenth of the streams."""
    dimensions, rate = 20, 0.03
    correlation, volatility = basket(dimensions)
    names = tuple(f"s{i:02d}" for i in range(dimensions))
    model = mlp(dimensions + 1, 1, width=8)
    x = 0.5 + torch.rand(4, dimensions + 1, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    covariance = correlation * volatility[:, None] * volatility
    prices = x[:, :dimensions]
    at_points = torch.zeros(4, dimensions + 1, dimensions + 1, dtype=torch.float64)
    at_points[:, :-1, :-1] = covariance * prices[:, :, None] * prices[:, None, :]

    def along_eigenvectors(u: Any, a: Tensor, s: Tensor) -> Any:
        drift = sum(rate * s[:, i : i + 1] * u.d(name) for i, name in enumerate(names))
        return u.t + 0.5 * u.second(a) + drift - rate * u

    def pair_by_pair(u: Any, s: Tensor) -> Any:
        total = u.t - rate * u
        for i, a in enumerate(names):
            total = total + rate * s[:, i : i + 1] * u.d(a)
            for j, b in enumerate(names):
                total = total + 0.5 * float(covariance[i, j]) * s[:, i : i + 1] * s[:, j : j + 1] * u.d(a, b)
        return total

    inputs = (*names, "t")
    short = Residual(along_eigenvectors, inputs, data=("a", "s"))
    long = Residual(pair_by_pair, inputs, data=("s",))
    given = {"a": at_points, "s": prices}
    ours, exact = short(model, x, Taylor(), **given), long(model, x, AD(), s=prices)
    assert torch.allclose(ours, exact, rtol=1e-10, atol=1e-12)
    assert torch.allclose(short(model, x, AD(), **given), exact, rtol=1e-10, atol=1e-12)
    asked = (short.operators(x, **given), long.operators(x, s=prices))
    streams = [Taylor().prepared(x, request_of(operators, x)).rows for operators in asked]
    assert streams[0] <= 43 < 232 <= streams[1]


def test_a_constant_matrix_and_the_same_pair_by_pair() -> None:
    model, x = mlp(4, 2), points(5, 4)
    matrix = torch.randn(4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    matrix = matrix + matrix.T
    written_out = reduce(add, (float(matrix[i, j]) * D(i, j) for i in range(4) for j in range(4)))
    exact = sum(float(matrix[i, j]) * evaluate(model, x, D(i, j), AD()) for i in range(4) for j in range(4))
    for operator in (dudx.Second(matrix), written_out, dudx.Second(matrix.expand(5, 4, 4))):
        for engine in ENGINES.values():
            assert torch.allclose(evaluate(model, x, operator, engine), exact, atol=1e-11)
    residual = Residual(lambda u, v: (u.second(matrix) - v, v.x * u), inputs=("a", "b", "c", "x"))
    assert torch.allclose(residual(model, x, Taylor())[0], exact[:, :1] - model(x)[:, 1:], atol=1e-11)


@pytest.mark.parametrize("matrix", [[[1.0, 2.0], [0.0, 1.0]], [1.0, 2.0], [[math.nan, 0.0], [0.0, 1.0]]])
def test_a_matrix_that_is_none_is_refused(matrix: Any) -> None:
    with pytest.raises(InputError, match="Second"):
        dudx.Second(matrix)


def test_a_matrix_that_is_learned_is_refused() -> None:
    with pytest.raises(InputError, match="constant"):
        dudx.Second(torch.eye(2, requires_grad=True))


def test_mixed_derivatives_with_constant_coefficients_are_taken_along_eigenvectors() -> None:
    """As many streams, a square of each instead of all products; found from the sum itself."""
    dimensions = 12
    correlation, volatility = basket(dimensions)
    covariance = correlation * volatility[:, None] * volatility
    pairs = [(i, j) for i in range(dimensions) for j in range(dimensions)]
    operator = reduce(add, (0.5 * float(covariance[i, j]) * D(i, j) for i, j in pairs)) + 0.3 * D(2) - 2 * D()
    model, x = mlp(dimensions, 2, width=8), points(4, dimensions)
    layout = Taylor().prepared(x, request_of([operator], x)).key.layout
    assert layout.streams == dimensions + 1
    assert sum(len(products) for mixing in layout.mixing for products in mixing) == dimensions
    exact = evaluate(model, x, operator, AD())
    assert torch.allclose(evaluate(model, x, operator, Taylor()), exact, rtol=1e-10, atol=1e-12)
    value, slope, again = evaluate(model, x, [D(), D(5), 3 * operator], Taylor())
    assert torch.allclose(again, 3 * exact, rtol=1e-10, atol=1e-12)
    assert torch.allclose(slope, evaluate(model, x, D(5), AD()))
    assert torch.allclose(value, model(x))


def test_a_matrix_of_low_rank_and_one_of_both_signs() -> None:
    model, x = mlp(6, 1, width=8), points(4, 6)
    vector = torch.arange(1.0, 7.0, dtype=torch.float64)
    for matrix in (torch.outer(vector, vector), torch.ones(6, 6, dtype=torch.float64) - 3 * torch.diag(vector)):
        exact = sum(float(matrix[i, j]) * evaluate(model, x, D(i, j), AD()) for i in range(6) for j in range(6))
        found = evaluate(model, x, dudx.Second(matrix), Taylor())
        assert torch.allclose(found, exact, rtol=1e-10, atol=1e-11)


def test_a_tensor_like_an_input_is_a_tensor():
    def equation(u, x):
        direction = torch.ones_like(x).repeat(1, 2)
        assert type(direction) is torch.Tensor
        direction[:, 1] = 0
        return u.along(direction) - u.x

    model, x = torch.nn.Linear(2, 1).double(), torch.rand(5, 2, dtype=torch.float64)
    assert dudx.Residual(equation, ("x", "y"))(model, x, dudx.AD()).abs().max() == 0
