"""Taylor against automatic differentiation: every rule, composed at random, values, orders 1 to 4 and gradients."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from taylor_layers import LAYERS, OPERATORS, WEIGHT, WIDTH, Wrapped, assert_agree, network, points
from torch import Tensor, nn

import dudx
from dudx import AD, Along, D, Laplacian, Taylor, evaluate


@pytest.mark.parametrize("name", LAYERS)
def test_every_rule_agrees_with_automatic_differentiation(name: str) -> None:
    model = network([name, "tanh", name])
    x = points()
    v = torch.randn(x.shape, dtype=x.dtype, generator=torch.Generator().manual_seed(2))
    assert_agree(model, x, [*OPERATORS, Along(v), Along(v, 2), Along(v, 3), Along(v, 4)])


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("operator", [D(), D(0), D(1), D(0) + 2 * D(1), D(0, 0)], ids=repr)
def test_every_rule_agrees_where_one_operator_is_asked_for(name: str, operator: dudx.operators.Operator) -> None:
    """Fewer orders and fewer streams than all operators together would need."""
    assert_agree(network([name, "tanh", name]), points(), [operator])


@pytest.mark.parametrize("name", LAYERS)
def test_gradients_with_respect_to_parameters_agree_for_every_rule(name: str) -> None:
    model = network([name, "sin"])
    gradients = []
    for engine in (Taylor(), AD()):
        model.zero_grad()
        values = evaluate(model, points(), [D(), D(0), Laplacian(), D(0, 0, 1)], engine)
        torch.stack(values).square().mean().backward()
        gradients.append([p.grad.clone() for p in model.parameters() if p.grad is not None])
    assert len(gradients[0]) == len(gradients[1]) > 0
    for ours, exact in zip(*gradients, strict=True):
        assert ((ours - exact).abs().max() / (1 + exact.abs().max())) < 1e-10


@settings(max_examples=25, deadline=None)
@given(
    names=st.lists(st.sampled_from(sorted(LAYERS)), min_size=1, max_size=4),
    seed=st.integers(0, 1000),
    inputs=st.integers(1, 3),
)
def test_rules_composed_at_random_agree(names: list[str], seed: int, inputs: int) -> None:
    model = network(names, seed, inputs)
    last = inputs - 1
    operators = [D(), D(0), D(0, last), Laplacian(), D(0, 0, last), Laplacian() @ Laplacian()]
    assert_agree(model, points(seed + 1, inputs), operators)


def test_fourier_features_and_siren() -> None:
    torch.manual_seed(0)
    frequencies = torch.randn(2, 8, dtype=torch.float64)

    class Embedded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 1))

        def forward(self, x: Tensor) -> Tensor:
            phase = 2 * torch.pi * x @ frequencies
            return self.body(torch.cat([torch.sin(phase), torch.cos(phase)], dim=-1))

    class Siren(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(2, 8), nn.Linear(8, 8), nn.Linear(8, 1)])

        def forward(self, x: Tensor) -> Tensor:
            for layer in self.layers[:-1]:
                x = torch.sin(6.0 * layer(x))
            return self.layers[-1](x)

    for model in (Embedded().double(), Siren().double()):
        assert_agree(model, points(), OPERATORS)


def test_hard_constraints_around_a_network() -> None:
    body = network(["tanh"])

    def constrained(x: Tensor) -> Tensor:
        return x[:, :1] * (1 - x[:, :1]) * body(x) + torch.sin(x[:, 1:])

    for operator in OPERATORS:
        ours, exact = (evaluate(constrained, points(), [operator], engine)[0] for engine in (Taylor(), AD()))
        assert (ours - exact).abs().max() < 1e-10 * (1 + exact.abs().max())


IN_PLACE: dict[str, Callable[[], nn.Module]] = {
    "relu": lambda: nn.ReLU(inplace=True),
    "leaky relu": lambda: nn.LeakyReLU(0.1, inplace=True),
    "elu": lambda: nn.ELU(inplace=True),
    "silu": lambda: nn.SiLU(inplace=True),
    "mish": lambda: nn.Mish(inplace=True),
    "dropout": lambda: Wrapped(lambda x: F.dropout(x, 0.5, training=True, inplace=True)),
}


@pytest.mark.parametrize("name", IN_PLACE)
def test_a_layer_that_works_in_place_changes_what_it_was_given(name: str) -> None:
    first, layer = nn.Linear(2, WIDTH).double(), IN_PLACE[name]()

    def model(x: Tensor) -> Tensor:
        h = first(torch.sin(x))
        before = h + 0
        torch.manual_seed(0)
        return 2 * before + 3 * layer(h) + h  # the last h is what the layer made of it

    assert_agree(model, points(), [D(), D(0), D(0, 0)])


@pytest.mark.parametrize("engine", [Taylor(coupled="ignore"), AD(coupled="ignore")], ids=repr)
def test_a_layer_that_works_in_place_on_the_points_is_refused(engine) -> None:
    with pytest.raises(dudx.errors.ModelError, match="in place"):
        evaluate(nn.Sequential(nn.ReLU(inplace=True), nn.Linear(2, 1).double()), points(), [D(0)], engine)


EXPONENTS: dict[str, Callable[[Tensor], Tensor]] = {
    "one number": lambda x: x ** torch.tensor(2.0),
    "a whole number": lambda x: x ** torch.tensor(3),
    "monomials": lambda x: (x.unsqueeze(-1) ** torch.arange(4)).flatten(1),
    "monomials of a column": lambda x: x[:, :1] ** torch.arange(5, dtype=torch.float64),
    "one for each column": lambda x: torch.pow(x, torch.tensor([4, 3])),
    "one for each point": lambda x: x ** (torch.arange(7) % 3).unsqueeze(1),
    "more axes than the base": lambda x: (x[:, 0] ** torch.arange(3.0).reshape(3, 1)).T,
    "negative": lambda x: (x - 3) ** torch.tensor([-1.0, -2.0]),
    "fractions of positive numbers": lambda x: (x + 3) ** torch.tensor([0.5, -1.5], dtype=torch.float64),
}


@pytest.mark.parametrize("function", EXPONENTS.values(), ids=EXPONENTS)
def test_a_tensor_of_exponents_takes_any_base_that_torch_takes(function) -> None:
    x = points()
    assert bool((x < 0).any())
    assert_agree(function, x, OPERATORS)
    assert_agree(function, x, [D(0)])


def powers_and_gradients(function, x, engine, parameters) -> list[Tensor]:
    values = evaluate(function, x, [D(), D(0), D(0, 0), D(1, 1, 1)], engine)
    return [*values, *torch.autograd.grad(torch.stack(values).square().mean(), parameters)]


def test_a_tensor_of_exponents_is_finite_at_zero() -> None:
    """Automatic differentiation is not finite there, so the reference is the product written out."""
    weight = torch.eye(2, dtype=torch.float64, requires_grad=True)
    x = torch.cat([torch.zeros(1, 2, dtype=torch.float64), points()])
    ours = powers_and_gradients(lambda x: (x @ weight) ** torch.tensor([1, 2]), x, Taylor(), [weight])
    written_out = lambda x: torch.stack([(x @ weight)[:, 0], (x @ weight)[:, 1] * (x @ weight)[:, 1]], 1)  # noqa: E731
    for value, exact in zip(ours, powers_and_gradients(written_out, x, AD(), [weight]), strict=True):
        assert torch.allclose(value, exact, atol=1e-12)


def test_an_exponent_may_be_learned() -> None:
    exponent = torch.tensor([2.0, 1.5], dtype=torch.float64, requires_grad=True)
    x = points().abs() + 0.1
    results = [powers_and_gradients(lambda x: x**exponent, x, engine, [exponent]) for engine in (Taylor(), AD())]
    for value, exact in zip(*results, strict=True):
        assert torch.allclose(value, exact, rtol=1e-10)


def test_batch_norm_with_the_arguments_in_the_order_of_torch() -> None:
    mean, variance, weight, bias = torch.rand(4, WIDTH, dtype=torch.float64) + 0.5

    def model(x: Tensor) -> Tensor:
        h = torch.sin(x @ WEIGHT[:2])
        return torch.batch_norm(h, weight, bias, mean, variance, False, 0.1, 1e-5, False)

    assert_agree(model, points(), OPERATORS)
