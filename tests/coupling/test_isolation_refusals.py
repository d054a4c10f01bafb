"""Mixing without a rule, or a batch that does not fit: isolated exactly or refused by name, never computed wrongly."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from helpers import unchanged
from isolation_networks import BOTH, Plain, made
from torch import Tensor, nn

from dudx import AD, FD, CoupledModelError, D, Laplacian, PerSampleAD, Taylor, evaluate, frozen, isolate
from dudx.errors import InputError, ModelError, UnsupportedError

MIXTURES = {
    "torch.Tensor.cumsum": lambda h: h + h.cumsum(0),
    "torch.cumsum": lambda h: torch.cumsum(h, 0),
    "torch.Tensor.sort": lambda h: h - h.sort(0).values,
    "torch.Tensor.matmul": lambda h: h @ h.T @ h,
    "torch.matmul": lambda h: torch.matmul(h, torch.matmul(h.T, h)),
    "torch.Tensor.flip": lambda h: h - h.flip(0),
    "torch.roll": lambda h: h * torch.roll(h, 1, 0),
    "torch.median": lambda h: h - torch.median(h, 0).values,
    "torch.Tensor.prod": lambda h: h * h.prod(0),
    "torch.nn.functional.linear": lambda h: h @ torch.nn.functional.linear(h.T, h.T),
    "torch.cov": lambda h: h @ torch.cov(h.T),
}
approximated = partial(isolate, approximate=True)
OPERATOR = {"torch.Tensor.matmul": "torch.Tensor.__matmul__"}  # torch names the operator by its method


@pytest.mark.parametrize("make", [approximated, frozen])
@pytest.mark.parametrize("name", MIXTURES)
def test_the_function_is_named(name, make):
    x = torch.rand(8, 2, dtype=torch.float64)
    named = rf"no rule for ({name}|{OPERATOR.get(name, name)}) over the batch, .*exact=True.*PerSampleAD.*mixing_rule"
    with pytest.raises(CoupledModelError, match=named):
        make(lambda x: MIXTURES[name](x)[:, :1], x)


def assert_exact(network, x, method="vectorised"):
    """By default such a network is isolated exactly."""
    isolated = isolate(network, x)
    assert isolated.method == "each alone, in a batch of its own"
    ours = evaluate(isolated, x, [Laplacian()], AD())[0]
    exact = evaluate(network, x, [Laplacian()], PerSampleAD(method=method))[0]
    assert (ours - exact).abs().max() < 1e-11 * (1 + exact.abs().max())


@pytest.mark.parametrize("name", MIXTURES)
def test_what_has_no_rule_is_exact_by_default(name):
    assert_exact(lambda x: MIXTURES[name](x)[:, :1], torch.rand(8, 2, dtype=torch.float64), "loop")


class Whitened(nn.Module):
    """Features decorrelated by the inverse of their Gram matrix."""

    def forward(self, x: Tensor) -> Tensor:
        gram = x.T @ x + torch.eye(x.shape[1], dtype=x.dtype)
        return x @ torch.linalg.inv(gram)


class Mixed(nn.Module):
    def __init__(self, layer: nn.Module):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Tanh(), layer, nn.Linear(4, 1))

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)


class Cumulated(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.cumsum(0)


@pytest.mark.parametrize(
    ("layer", "where"),
    [
        (Whitened(), r"torch\.Tensor\.(__)?matmul(__)? over the batch \(in module 'net\.3'\)"),
        (Cumulated(), r"torch\.Tensor\.cumsum over the batch \(in module 'net\.3'\)"),
        (nn.Sequential(nn.Identity(), Cumulated()), r"torch\.Tensor\.cumsum over the batch \(in module 'net\.3\.1'\)"),
    ],
    ids=["inverse of the Gram matrix", "cumsum", "nested"],
)
def test_the_module_is_named(layer, where):
    model, x = Mixed(layer).double(), torch.rand(8, 2, dtype=torch.float64)
    with unchanged(model), pytest.raises(CoupledModelError, match=f"no rule for {where}"):
        isolate(model, x, approximate=True)
    hooks = [h for m in model.modules() for h in (*m._forward_hooks, *m._forward_pre_hooks)]
    assert hooks == []
    # The remedy that the message names works.
    ours = evaluate(isolate(model, x, exact=True), x, [Laplacian()], AD())[0]
    assert (ours - evaluate(model, x, [Laplacian()], PerSampleAD())[0]).abs().max() < 1e-11
    assert_exact(model, x)


def test_a_network_that_fails_isolated_without_a_word_is_refused():
    def silent(x):
        mean = x.mean(0)
        if mean.ndim > 1:
            raise ValueError
        return x + mean

    with pytest.raises(CoupledModelError, match=r"fails \(ValueError\).*exact=True"):
        isolate(silent, torch.rand(8, 2, dtype=torch.float64), approximate=True)
    assert_exact(silent, torch.rand(8, 2, dtype=torch.float64))


def test_what_was_refused_is_refused_again():
    model, x = Mixed(Cumulated()).double(), torch.rand(8, 2, dtype=torch.float64)
    for _ in range(4):
        with pytest.raises(CoupledModelError, match="cumsum"):
            isolate(model, x, approximate=True)


def test_influence_on_later_and_on_earlier_samples_is_found():
    x = torch.rand(8, 2, dtype=torch.float64)
    for shifted in (lambda x: torch.cat([x[:1], x[:-1]]), lambda x: torch.cat([x[1:], x[-1:]])):
        with pytest.raises(CoupledModelError, match=r"no rule for torch\.\S*(cat|__getitem__) over the batch"):
            isolate(lambda x, shifted=shifted: x * shifted(x), x, approximate=True)
        assert_exact(lambda x, shifted=shifted: x * shifted(x), x)


def test_mixing_that_is_hidden_where_the_output_is_forced_to_zero_is_found():
    x = torch.linspace(0, 1, 8, dtype=torch.float64).round().unsqueeze(1)  # every sample on the boundary
    with pytest.raises(CoupledModelError, match="cumsum"):
        isolate(lambda x: x * (1 - x) * x.cumsum(0), x, approximate=True)
    assert_exact(lambda x: x * (1 - x) * x.cumsum(0), x)


@pytest.mark.parametrize(
    "network",
    [lambda x: torch.tanh(x - x.sum(0) / x.shape[0]), lambda x: x.softmax(0) * len(x)],
    ids=["mean by hand", "softmax times the size"],
)
def test_a_network_that_counts_its_rows_is_refused(network):
    x = torch.rand(8, 2, dtype=torch.float64)
    with pytest.raises(CoupledModelError, match=r"differs from its plain output.*x\.shape\[0\].*exact=True"):
        isolate(network, x, approximate=True)
    assert_exact(network, x)


def test_a_network_that_draws_random_numbers_has_no_plain_output_to_differ_from():
    x = torch.rand(8, 2, dtype=torch.float64)
    isolated = isolate(lambda x: x - x.mean(0) + 0.1 * torch.randn_like(x), x)
    assert isolated.method == "each alone, in one pass"
    # Noise has no derivative, and a sample moves the mean by an eighth.
    slope = evaluate(isolated, x, [D(0)], AD())[0]
    torch.testing.assert_close(slope, torch.tensor([[7 / 8, 0.0]], dtype=torch.float64).expand(8, 2))
    assert 0.01 < (isolated(x) - (x - x.mean(0))).std() < 0.3


def test_a_network_that_returns_nan_by_itself_is_not_blamed():
    x = torch.rand(8, 2, dtype=torch.float64)

    def network(x: Tensor) -> Tensor:
        return torch.cat([torch.log(x - 2), x - x.mean(0)], 1)

    isolated = isolate(network, x)
    assert isolated.method == "each alone, in one pass"
    ours, exact = (evaluate(m, x, [D(), D(0)], e) for m, e in ((isolated, AD()), (network, PerSampleAD())))
    for a, b in zip(ours, exact, strict=True):
        torch.testing.assert_close(a, b, equal_nan=True)
    assert ours[0][:, :2].isnan().all()
    assert ours[0][:, 2:].isfinite().all()


@pytest.mark.parametrize(
    "bias", [lambda h: -(h.unsqueeze(1) - h).square().sum(-1), lambda h: (h[:, :1] > h[:, 0]) | (h[:, :1] == h[:, 0])]
)
def test_an_attention_mask_computed_from_the_inputs_is_refused(bias):
    """Its row would have to follow the query, and a mask of the samples' numbers must not."""
    x = torch.rand(8, 4, dtype=torch.float64)

    def near(x: Tensor) -> Tensor:
        tokens = x.unsqueeze(0)
        return nn.functional.scaled_dot_product_attention(tokens, tokens, tokens, attn_mask=bias(x))[0]

    with pytest.raises(UnsupportedError, match=r"knows no masks.*exact=True"):
        isolate(near, x, approximate=True)
    assert_exact(near, x, "loop")


def test_a_network_that_takes_a_result_over_the_batch_for_one_number_is_refused():
    x = torch.rand(8, 2, dtype=torch.float64)
    for network in (lambda x: x * float(x.mean()), lambda x: x if x.mean() > 0 else -x):
        with pytest.raises(CoupledModelError, match=r"Isolated, this network fails .*exact=True"):
            isolate(network, x, approximate=True)
    assert_exact(network, x, "loop")


def test_a_number_taken_out_of_the_graph_has_lost_its_derivative():
    """In x · mean(x) with the mean as a Python number, only differences see the mean change."""
    x = torch.rand(8, 2, dtype=torch.float64)
    isolated = isolate(lambda x: x * float(x.mean()), x)
    for engine in (AD(), PerSampleAD(method="loop")):
        with pytest.raises(UnsupportedError, match="not how its output moves"):
            evaluate(isolated, x, [D(0), D(1)], engine)
    with pytest.raises(UnsupportedError, match="keep it a tensor"):
        evaluate(isolated, x, D(0), Taylor())
    exact = x.mean() + x[:, :1] / 16  # the first column's derivative of x_i (x_i + …) / 16
    assert (evaluate(isolated, x, D(0), FD(1e-3))[:, :1] - exact).abs().max() < 1e-9


def test_a_network_that_fails_by_itself_says_so():
    with pytest.raises(ModelError, match="The model failed on a batch of shape \\(8, 2\\)"):
        isolate(nn.Linear(3, 1).double(), torch.rand(8, 2, dtype=torch.float64))


def test_other_functions_for_queries_than_for_the_context_are_refused():
    calls = []

    def fickle(x: Tensor) -> Tensor:
        calls.append(x)
        return x - x.mean(0) if len(calls) % 2 else x - x.std(0)

    x = torch.rand(8, 2, dtype=torch.float64)
    with pytest.raises(UnsupportedError, match=r"same functions over the batch, in the same order.*exact=True"):
        isolate(fickle, x, approximate=True)
    assert isolate(fickle, x).method == "each alone, in a batch of its own"


@pytest.mark.parametrize("rows", [5, 25])
@BOTH
def test_other_numbers_of_rows_are_refused(rows, exact):
    model, x = made("batch norm")
    with pytest.raises(InputError, match="takes 24 rows or a multiple"):
        isolate(model, x, exact=exact)(torch.rand(rows, 2, dtype=torch.float64))


def test_a_context_of_one_is_refused():
    with pytest.raises(InputError, match="at least two samples"):
        isolate(Plain(2).double(), torch.rand(1, 2, dtype=torch.float64))
