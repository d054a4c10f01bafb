"""Taylor against automatic differentiation: every rule, composed at random, values, orders 1 to 4 and gradients."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import dudx
from dudx import AD, Along, D, Laplacian, Taylor, UnsupportedError, evaluate
from dudx.engines.taylor.jet import RULES

WIDTH = 6


def softly(x: Tensor) -> Tensor:
    """Somewhere positive and bounded, for functions that need it; smooth, so that all derivatives exist."""
    return torch.sigmoid(x) + 0.5


class Wrapped(nn.Module):
    """A function of (B, WIDTH) as a layer."""

    def __init__(self, function: Callable[[Tensor], Tensor]):
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


class Gated(nn.Module):
    """The modified MLP's block: two encoders mixed by a gate."""

    def __init__(self) -> None:
        super().__init__()
        self.u, self.v, self.z = (nn.Linear(WIDTH, WIDTH) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        gate = torch.sigmoid(self.z(x))
        return (1 - gate) * torch.tanh(self.u(x)) + gate * torch.sin(self.v(x))


class FeatureAttention(nn.Module):
    """Attention among the features of one sample, by nn.MultiheadAttention."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(4, num_heads=2, batch_first=True)
        self.spread = nn.Linear(1, 4)

    def forward(self, x: Tensor) -> Tensor:
        tokens = torch.tanh(self.spread(x.unsqueeze(-1)))
        return self.attention(tokens, tokens, tokens, need_weights=False)[0].sum(-1)


def batch_norm_in_eval_mode() -> nn.Module:
    layer = nn.BatchNorm1d(WIDTH)
    layer.running_mean = torch.randn(WIDTH)
    layer.running_var = torch.rand(WIDTH) + 0.5
    return layer.eval()


WEIGHT = torch.randn(WIDTH, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(3)) / WIDTH


#: Every rule, as layers from WIDTH features to WIDTH features that keep numbers of order one.
LAYERS: dict[str, Callable[[], nn.Module]] = {
    "linear": lambda: nn.Linear(WIDTH, WIDTH),
    "linear without bias": lambda: nn.Linear(WIDTH, WIDTH, bias=False),
    "tanh": nn.Tanh,
    "sigmoid": nn.Sigmoid,
    "softplus": nn.Softplus,
    "steep softplus": lambda: nn.Softplus(beta=15.0),
    "silu": nn.SiLU,
    "mish": nn.Mish,
    "gelu": nn.GELU,
    "gelu by tanh": lambda: nn.GELU(approximate="tanh"),
    "relu": nn.ReLU,
    "leaky relu": lambda: nn.LeakyReLU(0.1),
    "elu": nn.ELU,
    "log sigmoid": nn.LogSigmoid,
    "sin": lambda: Wrapped(torch.sin),
    "cos": lambda: Wrapped(torch.cos),
    "sinh": lambda: Wrapped(lambda x: torch.sinh(torch.tanh(x))),
    "cosh": lambda: Wrapped(lambda x: torch.cosh(torch.tanh(x))),
    "exp": lambda: Wrapped(lambda x: torch.exp(-x * x)),
    "expm1": lambda: Wrapped(lambda x: torch.expm1(torch.sin(x))),
    "log": lambda: Wrapped(lambda x: torch.log(softly(x))),
    "log1p": lambda: Wrapped(lambda x: torch.log1p(softly(x))),
    "sqrt": lambda: Wrapped(lambda x: torch.sqrt(softly(x))),
    "rsqrt": lambda: Wrapped(lambda x: torch.rsqrt(softly(x))),
    "reciprocal": lambda: Wrapped(lambda x: torch.reciprocal(softly(x))),
    "square": lambda: Wrapped(lambda x: torch.square(torch.sin(x))),
    "erf": lambda: Wrapped(torch.erf),
    "erfc": lambda: Wrapped(torch.erfc),
    "hypot": lambda: Wrapped(lambda x: torch.hypot(1.5 + x, torch.cos(x))),
    "abs": lambda: Wrapped(torch.abs),
    "cube": lambda: Wrapped(lambda x: torch.sin(x) ** 3),
    "negative power": lambda: Wrapped(lambda x: softly(x) ** -1.5),
    "power of a constant": lambda: Wrapped(lambda x: 2.0 ** torch.sin(x)),
    "power of a jet": lambda: Wrapped(lambda x: softly(x) ** torch.sin(x)),
    "arithmetic": lambda: Wrapped(lambda x: 1 - 0.3 * x + torch.sin(x) / 2 - x / softly(x) + 2 / softly(x)),
    "product": lambda: Wrapped(lambda x: torch.sin(x) * torch.cos(x.flip(1))),
    "product with a column": lambda: Wrapped(lambda x: torch.sin(x) * torch.tanh(x[:, :1])),
    "matmul": lambda: Wrapped(lambda x: x @ WEIGHT),
    "matmul from the left": lambda: Wrapped(lambda x: (WEIGHT @ x.T).T),
    "addmm": lambda: Wrapped(lambda x: torch.addmm(torch.ones(WIDTH, dtype=x.dtype), x, WEIGHT)),
    "einsum": lambda: Wrapped(lambda x: torch.einsum("bi,oi->bo", x, WEIGHT)),
    "einsum of two jets": lambda: Wrapped(lambda x: torch.einsum("bi,bj->bi", torch.sin(x), torch.tanh(x)) / WIDTH),
    "outer products": lambda: Wrapped(lambda x: (torch.sin(x).unsqueeze(2) @ torch.cos(x).unsqueeze(1)).mean(2)),
    "cat and split": lambda: Wrapped(lambda x: torch.cat([t * i for i, t in enumerate(x.split(2, dim=1))], dim=1)),
    "cat with a constant": lambda: Wrapped(lambda x: torch.cat([x[:, 1:], torch.ones_like(x[:, :1])], dim=1)),
    "stack and unbind": lambda: Wrapped(lambda x: torch.stack(x.unbind(1)[::-1], dim=1)),
    "chunk": lambda: Wrapped(lambda x: torch.cat(x.chunk(3, dim=-1)[::-1], dim=-1)),
    "reshape": lambda: Wrapped(lambda x: x.reshape(-1, 2, 3).transpose(1, 2).reshape(-1, WIDTH)),
    "view and permute": lambda: Wrapped(lambda x: x.view(len(x), 3, 2).permute(0, 2, 1).flatten(1)),
    "index": lambda: Wrapped(lambda x: x[:, [3, 1, 0, 2, 5, 4]]),
    "sum": lambda: Wrapped(lambda x: x - 0.1 * x.sum(1, keepdim=True)),
    "mean": lambda: Wrapped(lambda x: x + x.mean(dim=-1, keepdim=True)),
    "variance": lambda: Wrapped(lambda x: torch.sin(x) * x.var(1, keepdim=True)),
    "deviation": lambda: Wrapped(lambda x: x / (0.5 + torch.sin(x).std(-1, correction=0, keepdim=True))),
    "where": lambda: Wrapped(lambda x: torch.where(x > 0, torch.sin(x), x)),
    "softmax": lambda: nn.Softmax(dim=-1),
    "layer norm": lambda: nn.LayerNorm(WIDTH),
    "batch norm, evaluating": batch_norm_in_eval_mode,
    "attention among features": FeatureAttention,
    "causal attention": lambda: Wrapped(
        lambda x: F.scaled_dot_product_attention(*[torch.sin(x).reshape(-1, 3, 2)] * 3, is_causal=True).flatten(1)
    ),
    "gated block": Gated,
    "residual block": lambda: Wrapped(lambda x: x + torch.tanh(x)),
    "dropout, evaluating": lambda: nn.Dropout(0.5).eval(),
    "detached factor": lambda: Wrapped(lambda x: x * torch.sigmoid(x.detach())),
}
#: Every derivative of order 3 and above of these is zero or undefined at the kink, which random points miss.
OPERATORS = [
    D(), D(0), D(1, 1), D(0, 1), Laplacian(), D(1) - 0.3 * D(0, 0) + 2 * D(), D(0, 0, 0), D(0, 0, 1), D(0, 0, 0, 0),
    D(0, 0, 1, 1), Laplacian() @ Laplacian(), D(0) + 2 * D(1),
]  # fmt: skip


def network(names: list[str], seed: int = 0, inputs: int = 2, outputs: int = 2) -> nn.Module:
    torch.manual_seed(seed)
    layers = [LAYERS[name]() for name in names]
    return nn.Sequential(nn.Linear(inputs, WIDTH), *layers, nn.Linear(WIDTH, outputs)).double().eval()


def points(seed: int = 1, inputs: int = 2) -> Tensor:
    return torch.rand(7, inputs, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) * 2 - 1


def assert_agree(model: nn.Module, x: Tensor, operators: list[dudx.Operator]) -> None:
    # Random chains of layers may steepen: what counts is the error relative to the size of the derivative.
    for operator, taylor, exact in zip(
        operators, evaluate(model, x, operators, Taylor()), evaluate(model, x, operators, AD()), strict=True
    ):
        scale = 1 + exact.abs().max()
        assert ((taylor - exact).abs().max() / scale) < 1e-10, operator


@pytest.mark.parametrize("name", LAYERS)
def test_every_rule_agrees_with_automatic_differentiation(name: str) -> None:
    model = network([name, "tanh", name])
    x = points()
    v = torch.randn(x.shape, dtype=x.dtype, generator=torch.Generator().manual_seed(2))
    assert_agree(model, x, [*OPERATORS, Along(v), Along(v, 2), Along(v, 3), Along(v, 4)])


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("operator", [D(), D(0), D(1), D(0) + 2 * D(1), D(0, 0)], ids=repr)
def test_every_rule_agrees_where_one_operator_is_asked_for(name: str, operator: dudx.Operator) -> None:
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


def test_the_number_of_streams_is_what_the_operators_need() -> None:
    x = points(inputs=3)
    heat = D(2) - D(0, 0) - D(1, 1)
    assert Taylor().prepared(x, [heat]).key.layout.streams == 3  # x, y and the operator, beside the value
    burgers = [D(), D(0), D(1) - 0.01 * D(0, 0)]
    assert Taylor().prepared(points(), burgers).key.layout.streams == 2  # x and the operator
    wide = torch.rand(4, 100, dtype=torch.float64)
    laplacian = Laplacian().expanded(100)
    assert Taylor().prepared(wide, [laplacian]).key.layout.streams == 101
    assert Taylor().prepared(x, [Along(torch.rand_like(x))]).key.layout.streams == 1
    biharmonic = (Laplacian() @ Laplacian()).expanded(2)
    assert Taylor().prepared(points(), [biharmonic]).key.layout.streams == 8
    # The Laplacian is a sum of streams that the biharmonic operator has anyway.
    assert Taylor().prepared(points(), [biharmonic, Laplacian().expanded(2), D(0)]).key.layout.streams == 8


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


COMPARED: dict[str, Callable[[Tensor], Tensor]] = {
    "equal to a number": lambda x: torch.where(x == 0.5, torch.sin(x), x * x),
    "equal to a number of numpy's": lambda x: torch.where(2 * x == np.int64(1), torch.sin(x), x * x),
    "equal to a jet": lambda x: torch.where(torch.sin(x) == torch.sin(x), torch.sin(x), x * x),
    "different from a tensor": lambda x: torch.where(x != torch.full((7, 2), 0.5), torch.sin(x), x * x),
    "tensor on the left": lambda x: torch.where(torch.full((7, 2), 0.5) == x, torch.sin(x), x * x),
    "remainder of a number": lambda x: torch.sin(x % 0.7),
    "remainder of a jet": lambda x: torch.sin(x) % (2 + torch.cos(x)),
    "remainder of a tensor": lambda x: torch.remainder(torch.sin(x), torch.tensor([0.3, 0.4], dtype=x.dtype)),
    "remainder of a number by a jet": lambda x: 5.0 % (2 + x),
    "whole part": lambda x: x * (3 * x // 1),
    "whole part of a number by a jet": lambda x: x * (5.0 // (2 + x)),
}
#: The same written out, where torch does not know the derivative itself.
WRITTEN_OUT: dict[str, Callable[[Tensor], Tensor]] = {
    "remainder of a number by a jet": lambda x: 5.0 - (2 + x) * torch.floor(5.0 / (2 + x.detach())),
    "whole part": lambda x: x * torch.floor(3 * x.detach()),
    "whole part of a number by a jet": lambda x: x * torch.floor(5.0 / (2 + x.detach())),
}


@pytest.mark.parametrize("name", COMPARED)
def test_comparisons_and_remainders(name: str) -> None:
    x = points()
    x[0, 0] = 0.5
    for operators in ([D(0)], [D(), D(0), D(1, 1), D(0, 1), D(0, 0, 0)]):
        reference = evaluate(WRITTEN_OUT.get(name, COMPARED[name]), x, operators, AD())
        for ours, exact in zip(evaluate(COMPARED[name], x, operators, Taylor()), reference, strict=True):
            assert torch.allclose(ours, exact, atol=1e-12)


def test_jets_remain_keys_and_differ_from_what_is_no_number() -> None:
    def model(x: Tensor) -> Tensor:
        assert (x == None) is False  # noqa: E711
        assert (x != "x") is True
        return {x: torch.sin(x)}[x]

    assert_agree(model, points(), [D(0)])


CASTS: dict[str, Callable[[Tensor], Tensor]] = {
    "to whole numbers": lambda x: x * (3 * x).to(torch.long),
    "to truth values": lambda x: x * (x > 0).to(torch.bool) + x.to(torch.bool),
    "to the type of an index": lambda x: torch.sin(x) + (3 * x).type_as(torch.arange(2)),
    "and back": lambda x: x.to(torch.int32).to(x.dtype) * torch.sin(x),
    "a constant to the type of a jet": lambda x: x + torch.ones(7, 2).type_as(x),
    "a constant to a jet": lambda x: x * torch.full((7, 2), 2.0).to(x),
    "a constant to the shape of a jet": lambda x: x + torch.full((1, 1), 2.0, dtype=x.dtype).expand_as(x),
    "a constant viewed as a jet": lambda x: x + torch.full((14,), 2.0, dtype=x.dtype).view_as(x),
    "to single precision and back": lambda x: torch.sin(x.to(torch.float32).to(x)),
    "a jet to the shape of another": lambda x: x[:, :1].expand_as(x) * x + x.flatten().reshape_as(torch.sin(x)),
}


@pytest.mark.parametrize("name", CASTS)
def test_only_what_stays_a_real_number_keeps_its_derivatives(name: str) -> None:
    x = points() * 2
    for operators in ([D(0)], [D(), D(0), D(1, 1)]):
        for ours, exact in zip(*(evaluate(CASTS[name], x, operators, e) for e in (Taylor(), AD())), strict=True):
            assert torch.allclose(ours, exact, rtol=1e-5 if "single" in name else 1e-12)


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
    with pytest.raises(dudx.ModelError, match="in place"):
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
    """Where automatic differentiation of the same function is not, so the reference is the product written out."""
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


JOINED: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "cat of a tuple": lambda x, c: torch.cat((x, c), dim=1),
    "cat, the constant first": lambda x, c: torch.cat((c, x), 1),
    "cat by keyword": lambda x, c: torch.cat(tensors=[x, c], dim=1),
    "cat of a tuple by keyword": lambda x, c: torch.cat(tensors=(x, c), dim=1),
    "cat of a list": lambda x, c: torch.cat([x, c], dim=1),
    "stack of a tuple": lambda x, c: torch.stack((x, c), dim=1).flatten(1),
    "hstack of a tuple": lambda x, c: torch.hstack((x, c)),
    "vstack of a tuple": lambda x, c: torch.vstack((x.T, c.T)).T,
    "pad": lambda x, c: F.pad(x, (1, 2), value=3.0),
    "pad with zeros": lambda x, c: F.pad(x, (1, 2)),
    "circular pad": lambda x, c: F.pad(x.unsqueeze(1), (1, 1), mode="circular").flatten(1),
    "concat of a tuple": lambda x, c: torch.concat((x, c, c), dim=-1),
}


@pytest.mark.parametrize("joined", JOINED.values(), ids=JOINED)
@pytest.mark.parametrize("operators", [[D()], [D(0)], OPERATORS], ids=["value", "first order", "all"])
def test_a_constant_beside_jets_has_no_derivative(joined, operators) -> None:
    c = torch.full((7, 2), 3.0, dtype=torch.float64)
    assert_agree(lambda x: joined(x, c), points(), operators)
    assert_agree(lambda x: torch.sin(joined(torch.tanh(x), c)), points(), operators)


def test_a_constant_beside_jets_decides_the_precision_as_torch_does() -> None:
    wide = torch.ones(7, 1, dtype=torch.float64) / 3
    x = points().float()
    for joined in (lambda x: torch.cat([x, wide], 1), lambda x: torch.where(x > 0, x, wide)):
        ours, exact = (evaluate(joined, x, [D(), D(0)], engine)[0] for engine in (Taylor(), AD()))
        assert ours.dtype == exact.dtype == torch.float64
        assert torch.equal(ours, exact)


def test_what_does_not_depend_on_the_inputs_just_runs() -> None:
    table = torch.randn(5, 1, dtype=torch.float64)

    def model(x: Tensor) -> Tensor:
        return torch.sin(x[:, :1]) + torch.linalg.eigvalsh(table @ table.T).sum()  # no rule, and none needed

    (second,) = evaluate(model, points(), [D(0, 0)], Taylor())
    assert torch.allclose(second, -torch.sin(points()[:, :1]))


def test_a_function_without_a_rule_is_named_once_by_a_name_that_can_be_pasted(monkeypatch) -> None:
    def model(x: Tensor) -> Tensor:
        return torch.cumprod(x + 3, 1)

    monkeypatch.delitem(dudx.engines.taylor.jet.RULES, torch.cumprod, raising=False)  # which the guide adds
    dudx.engines.taylor.generic._hinted.clear()
    with pytest.warns(dudx.SlowRuleWarning, match=r"@dudx\.taylor_rule\(torch\.cumprod\)"):
        assert_agree(model, points(), OPERATORS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        evaluate(model, points(), [D(0)], Taylor())


@pytest.mark.parametrize("function", [torch.special.bessel_j0, torch.special.hermite_polynomial_h], ids=["one", "two"])
def test_what_torch_cannot_differentiate_is_refused(function) -> None:
    def model(x: Tensor) -> Tensor:
        return function(x) if function is torch.special.bessel_j0 else function(x, torch.tensor(2))

    name = rf"torch\.special\.{function.__name__.removeprefix('special_')}"
    with pytest.raises(UnsupportedError, match=rf"{name}.*@dudx\.taylor_rule\({name}\)"):
        evaluate(model, points(), [D(0)], Taylor())


def test_numbers_made_of_tensors_are_refused() -> None:
    for function in (lambda x: x * float(x[0, 0]), lambda x: x * x[0, 0].item(), lambda x: x * x[0].tolist()[0]):
        with pytest.raises(UnsupportedError, match=r"Python number.*dudx\.FD\(\)"):
            evaluate(function, points(), [D(0)], Taylor(coupled="ignore"))


def test_a_rule_is_one_decorator() -> None:
    before = RULES[torch.digamma]

    @dudx.taylor_rule(torch.digamma)
    def digamma(x: object) -> object:
        from dudx.engines.taylor.laws import compose

        return compose(x, [torch.polygamma(n, x.value) for n in range(x.layout.top + 1)])

    try:
        exact, ours = (
            evaluate(lambda x: torch.digamma(x + 3), points(), [D(0, 0)], engine)[0] for engine in (AD(), Taylor())
        )
    finally:
        RULES[torch.digamma] = before
    assert (exact - ours).abs().max() < 1e-12


def test_a_mistake_in_a_rule_is_not_hidden() -> None:
    before = RULES[torch.digamma]
    try:
        dudx.taylor_rule(torch.digamma)(lambda x: x + None)
        with pytest.raises(TypeError):
            RULES[torch.digamma](points())
        with pytest.raises(TypeError):
            dudx.engines.taylor.jet.Jet.__torch_function__(torch.digamma, (), (points(),))
    finally:
        RULES[torch.digamma] = before


def test_the_rule_in_the_documentation_works() -> None:
    """The line of the docstring as it stands there."""
    (line,) = re.findall(r"`(taylor_rule\(.*)`", dudx.taylor_rule.__doc__)
    before = RULES[F.softsign]
    try:
        eval(line, {"taylor_rule": dudx.taylor_rule, "F": F, "torch": torch})
        assert_agree(nn.Sequential(nn.Linear(2, 3), nn.Softsign(), nn.Linear(3, 1)).double(), points(), OPERATORS)
    finally:
        RULES[F.softsign] = before


def test_batch_norm_with_the_arguments_in_the_order_of_torch() -> None:
    mean, variance, weight, bias = torch.rand(4, WIDTH, dtype=torch.float64) + 0.5

    def model(x: Tensor) -> Tensor:
        h = torch.sin(x @ WEIGHT[:2])
        return torch.batch_norm(h, weight, bias, mean, variance, False, 0.1, 1e-5, False)

    assert_agree(model, points(), OPERATORS)


def test_attributes_of_a_jet_are_those_of_its_value() -> None:
    def model(x: Tensor) -> Tensor:
        assert x.is_cuda is False
        assert x.is_meta is False
        assert x.itemsize == 8
        return torch.sin(x) * (2 if x.is_sparse else 1) + x.data

    assert_agree(model, points(), [D(0), D(0, 0)])
    assert_agree(lambda x: torch.sin(x.mH.mT), points(), [D(0), D(0, 0)])


@pytest.mark.parametrize("setting", [{"dropout_p": 0.5}, {"enable_gqa": True}])
def test_attention_that_taylor_does_not_know_is_refused_with_the_remedy(setting) -> None:
    def model(x: Tensor) -> Tensor:
        tokens = x.reshape(-1, 1, 2, 1)
        return F.scaled_dot_product_attention(tokens, tokens, tokens, **setting).flatten(1)

    with pytest.raises(UnsupportedError, match=r"dudx\.AD\(\)"):
        evaluate(model, points(), [D(0)], Taylor(coupled="ignore"))
    evaluate(model, points(), [D(0)], AD(coupled="ignore"))


def test_a_network_may_branch_on_its_values() -> None:
    """Which way it goes is constant between jumps."""
    model = lambda x: torch.sin(x) if x[:1, :1] else -x  # noqa: E731
    for ours, exact in zip(
        *(evaluate(model, points(), [D(0), D(0, 0)], e) for e in (Taylor(coupled="ignore"), AD(coupled="ignore"))),
        strict=True,
    ):
        assert torch.allclose(ours, exact)


def test_batch_norm_in_training_mode_is_refused_even_if_coupling_is_ignored() -> None:
    model = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)).double()
    with pytest.raises(UnsupportedError, match="mixes samples"):
        evaluate(model, points(), [D(0)], Taylor(coupled="ignore"))
