from __future__ import annotations

import pytest
import torch
from torch import nn

from dudx import AD, FD, Laplacian, Residual, Taylor, evaluate, random_laplacian
from dudx.engines.request import request_of
from dudx.errors import InputError


def network(dimensions: int) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(dimensions, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1)).double()


@pytest.mark.parametrize("engine", [AD(), Taylor(), FD(1e-3)], ids=["AD", "Taylor", "FD"])
@pytest.mark.parametrize("kind", ["axes", "dense"])
def test_the_estimate_is_unbiased(kind, engine):
    """The mean of many draws comes within four standard errors of the Laplacian."""
    model, point = network(6), torch.rand(1, 6, dtype=torch.float64)
    many = point.expand(4000, 6).contiguous()
    operator = random_laplacian(many, samples=2, kind=kind, generator=torch.Generator().manual_seed(0))
    (draws,) = evaluate(model, many, [operator], engine)
    (exact,) = evaluate(model, point, [Laplacian()], AD())
    standard_error = draws.std() / 4000**0.5
    assert standard_error > 0
    assert (draws.mean() - exact).abs() < 4 * standard_error


def test_all_axes_give_the_laplacian_itself():
    model, x = network(5), torch.rand(20, 5, dtype=torch.float64)
    ours, exact = evaluate(model, x, [random_laplacian(x, samples=5), Laplacian()], Taylor())
    assert torch.allclose(ours, exact, atol=1e-12)


def test_the_cost_does_not_grow_with_the_dimension():
    rows = {}
    for dimensions in (10, 1000):
        model, x = network(dimensions), torch.rand(8, dimensions, dtype=torch.float64)
        seen = []
        operator = random_laplacian(x, samples=3)
        model.register_forward_pre_hook(lambda module, inputs, seen=seen: seen.append(len(inputs[0])))
        evaluate(model, x, [operator], FD(1e-3, coupled="ignore"))
        rows[dimensions] = seen
        assert Taylor().prepared(x, request_of([operator], x)).key.layout.streams == 4
    assert rows[10] == rows[1000] == [7 * 8]


@pytest.mark.usefixtures("only_traced")
@pytest.mark.parametrize("compile", [False, True])
def test_inside_a_residual_each_call_draws_anew(compile):
    dimensions = 20
    names = [f"x{i}" for i in range(dimensions)]
    model, x = network(dimensions), torch.rand(30, dimensions, dtype=torch.float64)
    residual = Residual(lambda u: u.random_laplacian(4) - torch.sin(u), names, compile=compile)
    first, second = (residual(model, x, Taylor()) for _ in range(2))
    assert (residual.compile_seconds > 0) == compile
    assert not torch.equal(first, second)
    mean = torch.stack([residual(model, x, Taylor()) for _ in range(200)]).mean(0)
    exact = Residual(lambda u: u.laplacian() - torch.sin(u), names)(model, x, Taylor())
    assert (mean - exact).abs().mean() < 0.25 * (first - exact).abs().mean()


def test_a_generator_makes_the_draws_repeatable():
    model, x = network(7), torch.rand(9, 7, dtype=torch.float64)
    draws = [
        evaluate(model, x, [random_laplacian(x, 2, generator=torch.Generator().manual_seed(seed))], Taylor())[0]
        for seed in (1, 1, 2)
    ]
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [({"samples": 0}, "1 or more"), ({"samples": 4}, "only 3 different axes"), ({"kind": "sparse"}, "must be one of")],
)
def test_bad_requests(arguments, message):
    with pytest.raises(InputError, match=message):
        random_laplacian(torch.rand(5, 3), **arguments)
