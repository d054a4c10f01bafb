"""Streams of jets: no more than the operators need, and of the right shape wherever they are the same."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from taylor_layers import OPERATORS, WEIGHT, WIDTH, assert_agree, points
from torch import Tensor, nn

from dudx import AD, Along, D, Laplacian, Taylor, evaluate
from dudx.engines.request import request_of
from dudx.operators import Operator


def streams(x: Tensor, operators: list[Operator]) -> int:
    """The number of streams beside the value."""
    return Taylor().prepared(x, request_of(operators, x)).key.layout.streams


def test_the_number_of_streams_is_what_the_operators_need() -> None:
    x = points(inputs=3)
    heat = D(2) - D(0, 0) - D(1, 1)
    assert streams(x, [heat]) == 3  # x, y and the operator, beside the value
    burgers = [D(), D(0), D(1) - 0.01 * D(0, 0)]
    assert streams(points(), burgers) == 2  # x and the operator
    wide = torch.rand(4, 100, dtype=torch.float64)
    laplacian = Laplacian().expanded(100)
    assert streams(wide, [laplacian]) == 101
    assert streams(x, [Along(torch.rand_like(x))]) == 1
    biharmonic = (Laplacian() @ Laplacian()).expanded(2)
    assert streams(points(), [biharmonic]) == 8
    # The Laplacian is a sum of streams that the biharmonic operator has anyway.
    assert streams(points(), [biharmonic, Laplacian().expanded(2), D(0)]) == 8


@pytest.mark.parametrize("constrained", [False, True])
def test_a_narrow_last_layer_gives_each_stream_its_own(constrained: bool) -> None:
    """Its streams stay in parts, and are put together where something follows, such as a factor that is 0 at x = 0."""
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(2, 24), nn.GELU(), nn.Linear(24, 24), nn.Tanh(), nn.Linear(24, 2)).double()
    model = (lambda x: x[:, :1] * layers(x)) if constrained else layers
    biharmonic = Laplacian() @ Laplacian()
    for operators in ([biharmonic], [Laplacian()], [D(1), D(), biharmonic + 2 * D(0), D(0, 0, 1)]):
        expected, found = (evaluate(model, points(), operators, engine) for engine in (AD(), Taylor()))
        for exact, ours in zip(expected, found, strict=True):
            assert torch.allclose(ours, exact, rtol=1e-10, atol=1e-10)
        gradients = [
            # Without the value among them the last bias has no part in it.
            torch.autograd.grad(
                sum(part.square().mean() for part in parts), list(layers.parameters()), materialize_grads=True
            )
            for parts in (expected, found)
        ]
        for exact, ours in zip(*gradients, strict=True):
            assert torch.allclose(ours, exact, rtol=1e-9, atol=1e-9)


def test_the_collapsed_laplacian_in_many_dimensions() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(30, 16), nn.Tanh(), nn.Linear(16, 16), nn.GELU(), nn.Linear(16, 1)).double()
    x = torch.rand(5, 30, dtype=torch.float64)
    assert_agree(model, x, [Laplacian(), 2 * D(3) - Laplacian((1, 5, 28))])


SHAPES: dict[str, Callable[[Tensor], Tensor]] = {
    "linear after a sum with more features": lambda x: F.linear(x[:, :1] + torch.arange(6.0, dtype=x.dtype), WEIGHT),
    "linear after expand": lambda x: F.linear(torch.sin(x[:, :1]).expand(-1, WIDTH), WEIGHT),
    "linear after a constant": lambda x: F.linear(x[:, 1:] - torch.ones(7, WIDTH, dtype=x.dtype), WEIGHT, WEIGHT[0]),
    "matmul after a sum with more features": lambda x: (x[:, :1] + torch.arange(6.0, dtype=x.dtype)) @ WEIGHT,
    "view": lambda x: x.view(-1, 1).view(-1, 2),
    "view of all": lambda x: x.view(-1).view(7, 2) * x,
    "view as": lambda x: x.view_as(torch.empty(14)).reshape(7, 2),
    "view by a tuple": lambda x: x.view((14, 1)).view(x.shape),
    "view as tokens": lambda x: x.view(7, 2, 1).expand(7, 2, 3).flatten(1),
}


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("operators", [[D(0)], OPERATORS], ids=["first order", "all"])
def test_shapes_of_streams_that_are_the_same_at_every_point(name: str, operators) -> None:
    for ours, exact in zip(
        *(evaluate(SHAPES[name], points(), operators, e) for e in (Taylor(coupled="ignore"), AD())), strict=True
    ):
        assert torch.allclose(ours, exact, atol=1e-10)
