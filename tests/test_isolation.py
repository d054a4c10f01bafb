"""Isolated networks against the per-sample reference: each sample's own derivative, the others held still."""

from __future__ import annotations

import copy
import itertools
import math
import pickle
import re
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from helpers import Counted, mlp, parameter_gradients, rms, unchanged
from torch import Tensor, nn

import dudx
from dudx import (
    AD,
    EFD,
    FD,
    SFD,
    D,
    InputError,
    Laplacian,
    PerSampleAD,
    Residual,
    Taylor,
    UnsupportedError,
    evaluate,
    isolate,
)
from dudx.lab.run.networks import AttentionMLP, BatchNormMLP

OPERATORS = [D(), D(0), D(1), D(0, 1), Laplacian()]
EXACT = pytest.mark.parametrize("engine", [AD(), Taylor()], ids=["AD", "Taylor"])
BOTH = pytest.mark.parametrize("exact", [False, True], ids=["first-hand", "exact"])


class BatchNorm(nn.Module):
    def __init__(self, inputs: int, **options: object):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(inputs, 16),
            nn.BatchNorm1d(16, **options),
            nn.Tanh(),
            nn.Linear(16, 16),
            nn.Tanh(),
            nn.Linear(16, 1),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class Positions(nn.Module):
    """Batch norm of samples that have several positions, (B, channels, length) or (B, channels, height, width)."""

    def __init__(self, inputs: int, axes: int):
        super().__init__()
        self.embed, self.head, self.axes = nn.Linear(inputs, 24), nn.Linear(24, 1), axes
        self.norm = nn.BatchNorm1d(4) if axes == 1 else nn.BatchNorm2d(4)

    def forward(self, x: Tensor) -> Tensor:
        h = self.embed(x).reshape(-1, 4, 6) if self.axes == 1 else self.embed(x).reshape(-1, 4, 2, 3)
        return self.head(torch.tanh(self.norm(torch.sin(h))).flatten(1))


class Attention(nn.Module):
    """Attention over the batch by nn.MultiheadAttention, with or without the weights it can return."""

    def __init__(self, inputs: int, need_weights: bool = False, heads: int = 2):
        super().__init__()
        self.embed, self.norm = nn.Linear(inputs, 16), nn.LayerNorm(16)
        self.attention = nn.MultiheadAttention(16, heads, batch_first=True)
        self.head = nn.Sequential(nn.Tanh(), nn.Linear(16, 1))
        self.need_weights = need_weights

    def forward(self, x: Tensor) -> Tensor:
        h = self.embed(x)
        tokens = self.norm(h).unsqueeze(0)
        return self.head(h + self.attention(tokens, tokens, tokens, need_weights=self.need_weights)[0].squeeze(0))


def _halves(h: Tensor) -> Tensor:
    return h.unflatten(1, (2, 4))


def _by_variance_and_mean(variance_and_mean: tuple[Tensor, Tensor], h: Tensor) -> Tensor:
    return (h - variance_and_mean[1]) / (variance_and_mean[0] + 0.1)


#: Reductions over the batch written out, in the many ways that torch offers.
BY_HAND = {
    "mean and deviation": lambda h: (h - h.mean(0)) / (h.std(0) + 0.1),
    "kept axis": lambda h: (h - torch.mean(h, dim=0, keepdim=True)) * torch.var(h, 0, correction=0, keepdim=True),
    "sum, numpy's name": lambda h: torch.tanh(h + 0.1 * h.sum(axis=0)),
    "one axis": lambda h: h * (h[:, 0] - h[:, 0].mean(0)).unsqueeze(1),
    "a count": lambda h: h / (1 + (h > 0).sum(0)),
    "over everything": lambda h: (h - h.mean()) / h.std(),
    "biased variance of everything": lambda h: h / (0.1 + h.var(False)),
    "two axes, kept": lambda h: (_halves(h) / _halves(h).std((0, 2), keepdim=True)).flatten(1),
    "two axes": lambda h: (_halves(h) - _halves(h).mean((0, 1))).flatten(1),
    "var_mean": lambda h: _by_variance_and_mean(torch.var_mean(h, 0, correction=0), h),
    "std_mean": lambda h: _by_variance_and_mean(torch.std_mean(h, dim=0), h),
    "softmax": lambda h: h * torch.softmax(h, dim=0),
    "log_softmax": lambda h: h * F.log_softmax(h, 0),
    "logsumexp": lambda h: h - torch.logsumexp(h, 0),
    "logsumexp of everything": lambda h: h - h.logsumexp((0, 1), keepdim=True),
    "amax": lambda h: h - h.amax(0),
    "amin": lambda h: h * torch.amin(h, dim=0, keepdim=True),
    "max": lambda h: h - h.max(0).values,
    "min": lambda h: h - torch.min(h, 0)[0],
    "norm": lambda h: h / h.norm(dim=0),
    "sum of sizes": lambda h: h / torch.norm(h, 1, 0),
    "vector_norm": lambda h: h / torch.linalg.vector_norm(h, dim=0, keepdim=True),
    "vector_norm of third order": lambda h: h / torch.linalg.vector_norm(h, 3, dim=0),
    "largest size": lambda h: h / torch.linalg.vector_norm(h, math.inf, dim=0),
    "norm of everything": lambda h: h / torch.linalg.norm(h),
    "normalize": lambda h: F.normalize(h, dim=0),
    "each by itself": lambda h: h.softmax(1) + h.mean(1, keepdim=True) + F.normalize(h) + h.var(1, keepdim=True),
}


class ByHand(nn.Module):
    def __init__(self, inputs: int, name: str):
        super().__init__()
        self.a, self.b, self.mix = nn.Linear(inputs, 8), nn.Linear(8, 1), BY_HAND[name]

    def forward(self, x: Tensor) -> Tensor:
        return self.b(torch.tanh(self.mix(torch.sin(self.a(x)))))


class Plain(nn.Module):
    def __init__(self, inputs: int):
        super().__init__()
        self.a = nn.Sequential(
            nn.Linear(inputs, 16), nn.LayerNorm(16), nn.Tanh(), nn.GroupNorm(2, 16), nn.Linear(16, 1)
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.a(x)


NETWORKS = {
    "batch norm": BatchNorm,
    "batch norm without scale": lambda inputs: BatchNorm(inputs, affine=False),
    "batch norm of sequences": lambda inputs: Positions(inputs, 1),
    "batch norm of pictures": lambda inputs: Positions(inputs, 2),
    "attention": Attention,
    "attention with weights": lambda inputs: Attention(inputs, need_weights=True),
    "one head": lambda inputs: Attention(inputs, heads=1),
    "not coupled": Plain,
    **{name: lambda inputs, name=name: ByHand(inputs, name) for name in BY_HAND},
}


def made(name: str, inputs: int = 2, size: int = 24, dtype: torch.dtype = torch.float64) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    model = NETWORKS[name](inputs).to(dtype)
    return model, (torch.rand(size, inputs, dtype=torch.float64) * 4 - 2).to(dtype)


# -- against the reference -------------------------------------------------------------------------------------------


@EXACT
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-11)])
@pytest.mark.parametrize("name", NETWORKS)
def test_isolated_engines_agree_with_the_per_sample_reference(name, dtype, tolerance, engine):
    model, x = made(name, dtype=dtype)
    reference = evaluate(model, x, OPERATORS, PerSampleAD())
    for ours, exact in zip(evaluate(isolate(model, x), x, OPERATORS, engine), reference, strict=True):
        assert (ours - exact).abs().max() < tolerance * (1 + exact.abs().max())


def residual_gradient(network, x, engine, model):
    """The gradient in the parameters of a loss with a Laplacian in it."""
    residual = Residual(lambda u: u.laplacian() + u * u.x, ("x", "y", "z")[: x.shape[1]])
    return parameter_gradients(residual.loss(network, x, engine), model)


@pytest.mark.parametrize("name", NETWORKS)
def test_gradients_with_respect_to_parameters_flow_through_the_context_too(name):
    model, x = made(name)
    exact = residual_gradient(model, x, PerSampleAD(), model)
    for engine in (AD(), Taylor()):
        ours = residual_gradient(isolate(model, x), x, engine, model)
        assert (ours - exact).abs().max() < 1e-10 * (1 + exact.abs().max())


@pytest.mark.parametrize("trained", [False, True], ids=["fresh", "trained"])
@pytest.mark.parametrize(("inputs", "size"), [(1, 8), (2, 64), (3, 24)])
@pytest.mark.parametrize("network", [BatchNormMLP, AttentionMLP])
def test_the_networks_of_the_paper(network, inputs, size, trained):
    torch.manual_seed(0)
    model = network(inputs, width=16).double()
    x = torch.rand(size, inputs, dtype=torch.float64) * 2 - 1
    if trained:
        target, optimizer = torch.sin(3 * x).sum(1, keepdim=True), torch.optim.Adam(model.parameters(), 1e-2)
        for _ in range(30):
            optimizer.zero_grad()
            (model(x) - target).square().mean().backward()
            optimizer.step()
    for dtype, tolerance in ((torch.float64, 1e-11), (torch.float32, 1e-5)):
        model, x = model.to(dtype), x.to(dtype)
        operators = [D(), D(0), Laplacian()]
        reference = evaluate(model, x, operators, PerSampleAD())
        slope = residual_gradient(model, x, PerSampleAD(), model)
        for engine in (AD(), Taylor()):
            for ours, exact in zip(evaluate(isolate(model, x), x, operators, engine), reference, strict=True):
                assert (ours - exact).abs().max() < tolerance * (1 + exact.abs().max())
            ours = residual_gradient(isolate(model, x), x, engine, model)
            # A gradient of Laplacians goes through a third derivative more, in which single precision loses a digit.
            assert (ours - slope).abs().max() < 10 * tolerance * (1 + slope.abs().max())


@pytest.mark.parametrize("name", ["batch norm", "attention"])
def test_a_batch_of_a_thousand_at_a_few_samples(name):
    model, x = made(name, 2, 1024)
    few = [0, 511, 1023]
    exact = []
    for i in few:
        own = x[i].clone().requires_grad_()
        u = model(torch.cat([x[:i], own.unsqueeze(0), x[i + 1 :]]))[i]
        exact.append(torch.autograd.grad(u, own)[0])
    ours = evaluate(isolate(model, x), x, [D(0), D(1)], Taylor())
    assert (torch.cat(ours, 1)[few] - torch.stack(exact)).abs().max() < 1e-11


@pytest.mark.parametrize("name", ["batch norm", "attention", "mean and deviation"])
def test_differences_of_an_isolated_network_converge_at_their_order(name):
    model, x = made(name)
    (exact,) = evaluate(model, x, [Laplacian()], PerSampleAD())
    errors = [(evaluate(isolate(model, x), x, [Laplacian()], FD(h))[0] - exact).abs().max() for h in (2e-2, 1e-2)]
    assert torch.log2(errors[0] / errors[1]).item() == pytest.approx(2, abs=0.15)


@pytest.mark.parametrize("name", ["batch norm", "attention"])
def test_differences_are_as_accurate_as_on_a_plain_network(name):
    """In single precision, where rounding counts: relative to the value the error is that of a plain network."""
    model, x = made(name, dtype=torch.float32)
    plain = mlp().float()
    engines = [FD(3e-2), EFD({1: 1e-2, 2: 3e-2}), SFD((3e-2, 3e-2))]
    for engine in engines:
        errors = []
        for network, target in ((plain, plain), (model, isolate(model, x))):
            (exact,) = evaluate(network, x, [Laplacian()], PerSampleAD())
            (ours,) = evaluate(target, x, [Laplacian()], engine)
            errors.append(rms((ours - exact).detach()) / rms(exact.detach()))
        assert errors[1] < 3 * errors[0]


def test_the_usual_idiom_is_far_off_where_the_isolated_network_is_exact():
    model, x = made("batch norm")
    (exact,) = evaluate(model, x, [Laplacian()], PerSampleAD())
    (wrong,) = evaluate(model, x, [Laplacian()], AD(coupled="ignore"))
    assert (wrong - exact).abs().max() > 1e-2 * exact.abs().max()


def two_batch_norms() -> nn.Module:
    torch.manual_seed(0)
    layers = [nn.Linear(2, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Linear(16, 16), nn.BatchNorm1d(16), nn.Tanh()]
    return nn.Sequential(*layers, nn.Linear(16, 1)).double()


def test_second_hand_influence_fades_with_the_batch():
    """Approximated, two mixing layers have an error of the order of one over the batch size, and it is known."""

    def error(size: int) -> tuple[float, float]:
        model, x = two_batch_norms(), torch.rand(size, 2, dtype=torch.float64) * 4 - 2
        isolated = isolate(model, x, approximate=True)
        exact, ours = (evaluate(m, x, [D(0)], e)[0].detach() for m, e in ((model, PerSampleAD()), (isolated, AD())))
        return rms(ours - exact) / rms(exact), isolated.error

    (small, told_small), (large, told_large) = error(16), error(128)
    assert 0 < large < small / 4
    assert 0 < told_large < told_small / 2  # at a few samples
    assert small / 3 < told_small < 3 * small
    assert large / 3 < told_large < 3 * large


# -- which way is taken ----------------------------------------------------------------------------------------------


def bottleneck(h: Tensor) -> Tensor:
    centred = h - h.mean(0)
    return centred / centred.square().mean(0).sqrt()  # of what has been centred: second-hand


#: Functions of hidden states, and whether all samples may pass together.
WAYS = {
    "one batch norm": (nn.BatchNorm1d(8), True),
    "the same tensor twice": (lambda h: (h - h.mean(0)) / h.std(0), True),
    "beside softmax over features": (lambda h: h.softmax(1) * h.mean(0), True),
    "dropout before it": (lambda h: F.dropout(h, 0.5) - h.mean(0), True),
    "one after the other": (bottleneck, False),
    "two batch norms": (nn.Sequential(nn.BatchNorm1d(8), nn.Tanh(), nn.BatchNorm1d(8)), False),
    "a closed gate between two": (lambda h: F.batch_norm(h + 0 * h.mean(0), None, None, training=True), False),
    "no rule": (lambda h: h - h.amax(0), False),
}


@pytest.mark.parametrize("name", WAYS)
def test_all_samples_pass_together_only_where_that_is_exact(name):
    torch.manual_seed(0)
    (mix, together), embed, head = WAYS[name], nn.Linear(2, 8).double(), nn.Linear(8, 1).double()
    mix = mix.double() if isinstance(mix, nn.Module) else mix
    x = torch.rand(16, 2, dtype=torch.float64) * 4 - 2

    def network(x: Tensor) -> Tensor:
        return head(torch.tanh(mix(torch.sin(embed(x)))))

    isolated = isolate(network, x, update_statistics=False)
    assert isolated.way == ("each alone, in one pass" if together else "each alone, in a batch of its own")
    assert isolated.error == 0
    if "dropout" not in name:  # which is drawn for each evaluation
        ours, exact = evaluate(isolated, x, OPERATORS, AD()), evaluate(network, x, OPERATORS, PerSampleAD())
        for a, b in zip(ours, exact, strict=True):
            assert (a - b).abs().max() < 1e-11 * (1 + b.abs().max())


def test_the_way_is_decided_once_in_a_while():
    """The trainer isolates every batch."""
    model, x = Counted(two_batch_norms()), torch.rand(24, 2, dtype=torch.float64)
    looked = []
    for meeting in range(1, 9):
        before = len(model.rows)
        assert isolate(model, x + meeting).way == "each alone, in a batch of its own"
        looked += [meeting] * (len(model.rows) > before)
    assert looked == [1, 2, 4, 8]


def test_exact_and_approximate_exclude_each_other():
    model, x = made("batch norm")
    with pytest.raises(InputError, match="exact and approximate exclude each other"):
        isolate(model, x, exact=True, approximate=True)


def test_an_approximation_that_leaves_nothing_out_says_so():
    model, x = made("batch norm")
    assert isolate(model, x, approximate=True).error == 0


def test_what_is_isolated_reads_well():
    model, x = two_batch_norms(), torch.rand(24, 2, dtype=torch.float64)
    assert repr(isolate(model, x)) == "<Sequential seen by 24 samples: each alone, in a batch of its own>"
    assert repr(isolate(model[:3], x)) == "<Sequential seen by 24 samples: each alone, in one pass>"
    assert repr(isolate(model[:3], x).at([1])) == "<Sequential seen by 1 of 24 samples: each alone, in one pass>"
    assert repr(dudx.frozen(model, x)) == "<Sequential seen by 24 samples: nothing moves but the query>"
    approximate = isolate(model, x, approximate=True)
    for some in (approximate, approximate.at([1, 2])):
        assert re.search(r"each alone, in one pass, about [\d.]+ % left out>$", repr(some))


@pytest.mark.parametrize("made_again", [copy.deepcopy, lambda isolated: pickle.loads(pickle.dumps(isolated))])
@pytest.mark.parametrize("options", [{}, {"exact": True}, {"approximate": True}], ids=str)
def test_what_is_isolated_can_be_copied_and_kept(options, made_again):
    x = torch.rand(24, 2, dtype=torch.float64)
    isolated = isolate(two_batch_norms(), x, **options).at([3, 5])
    again = made_again(isolated)
    assert torch.equal(again(x[[3, 5]] + 1), isolated(x[[3, 5]] + 1))
    assert (repr(again), again.error) == (repr(isolated), isolated.error)


# -- some of the samples ---------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("name", ["batch norm", "attention", "softmax"])
def test_some_samples_have_the_derivatives_they_have_among_all(name, exact):
    model, x = made(name)
    isolated = isolate(model, x, exact=exact)
    for chosen in ([3, 17, 5], slice(4, 12), torch.tensor([23])):
        for engine in (AD(), Taylor(), FD(1e-2)):
            all_ = evaluate(isolated, x, [D(0), Laplacian()], engine)
            some = evaluate(isolated.at(chosen), x[chosen], [D(0), Laplacian()], engine)
            for a, b in zip(all_, some, strict=True):
                assert (a[chosen] - b).abs().max() < 1e-9  # differences divide rounding by the square of the step


def test_some_of_some_samples():
    model, x = made("batch norm")
    isolated = isolate(model, x)
    assert torch.allclose(isolated.at(slice(4, 12)).at([0, 7])(x[[4, 11]]), isolated(x)[[4, 11]])


def test_slices_add_up_to_the_gradient_of_the_whole():
    model, x = made("batch norm")
    isolated, residual = isolate(model, x, exact=True), Residual(lambda u: u.laplacian() + u, ("x", "y"))
    whole = parameter_gradients(residual.loss(isolated, x, AD()), model)
    dudx.backward(
        lambda part, numbers: residual.loss(isolated.at(numbers), part, AD()), (x, torch.arange(len(x))), chunk=5
    )
    assert (torch.cat([p.grad.flatten() for p in model.parameters()]) - whole).abs().max() < 1e-12


@pytest.mark.parametrize("samples", [[], [[1, 2]]])
def test_a_choice_that_is_none_is_refused(samples):
    model, x = made("batch norm")
    with pytest.raises(InputError, match="chosen by a slice or by a list"):
        isolate(model, x).at(samples)


# -- running statistics and dropout ----------------------------------------------------------------------------------


class Functional(nn.Module):
    """Batch norm by the function, with buffers of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(2))
        self.register_buffer("variance", torch.ones(2))

    def forward(self, x: Tensor) -> Tensor:
        return F.batch_norm(x, self.mean, self.variance, training=True)[:, :1]


STATISTICS = {
    "features": lambda: BatchNorm(2),
    "cumulative average": lambda: BatchNorm(2, momentum=None),
    "no tracking": lambda: BatchNorm(2, track_running_stats=False),
    "sequences": lambda: Positions(2, 1),
    "pictures": lambda: Positions(2, 2),
    "function": Functional,
    "two layers": lambda: nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 8), nn.BatchNorm1d(8), nn.Linear(8, 1)),
}


@BOTH
@pytest.mark.parametrize("engine", [AD(), Taylor(), FD(1e-2)], ids=["AD", "Taylor", "FD"])
@pytest.mark.parametrize("name", STATISTICS)
def test_running_statistics_are_updated_once_an_evaluation_as_in_a_plain_forward_pass(name, engine, exact):
    torch.manual_seed(0)
    model, x = STATISTICS[name]().double(), torch.rand(24, 2, dtype=torch.float64)
    plain = copy.deepcopy(model)
    for batch in (x, 2 * x + 1):
        with unchanged(model):
            isolated = isolate(model, batch, exact=exact)
        evaluate(isolated, batch, [Laplacian()], engine)
        plain(batch)
        for ours, expected in zip(model.buffers(), plain.buffers(), strict=True):
            assert torch.allclose(ours, expected, rtol=1e-12, atol=0)


@BOTH
@pytest.mark.parametrize("name", STATISTICS)
def test_statistics_stay_when_asked_to(name, exact):
    model, x = STATISTICS[name]().double(), torch.rand(24, 2, dtype=torch.float64)
    for network in (model, lambda x: model(x)):  # a function hides its modules no better
        with unchanged(model):
            evaluate(isolate(network, x, update_statistics=False, exact=exact), x, [Laplacian()], AD())


@BOTH
def test_in_evaluation_mode_batch_norm_is_left_alone(exact):
    model, x = made("batch norm")
    model(x)
    model.eval()
    with unchanged(model):
        assert torch.allclose(isolate(model, x, exact=exact)(x), model(x))


@BOTH
def test_a_sample_drops_the_same_features_wherever_it_is_moved(exact):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Dropout(0.5), nn.Linear(16, 1)).double()
    x = torch.rand(24, 2, dtype=torch.float64)
    isolated, rows = isolate(model, x, exact=exact), []
    for queries in (x, torch.cat([x, x, x])):
        torch.manual_seed(5)
        rows += isolated(queries).split(24)
    torch.manual_seed(5)
    plain = model(x)
    assert rms(plain.detach()) > 0.1
    assert all(torch.allclose(block, plain) for block in rows)


def test_half_precision_computes_statistics_in_single_precision():
    """A sample moves the mean of 1024 by less than bfloat16 can tell."""
    torch.manual_seed(0)
    model, x = nn.BatchNorm1d(1).bfloat16(), torch.randn(1024, 1).bfloat16()
    wide = isolate(copy.deepcopy(model).float(), x.float())
    ours = isolate(model, x)(x + 3)
    assert ours.dtype == torch.bfloat16
    # One rounding to bfloat16 of outputs up to 6.
    assert (ours.float() - wide((x + 3).float())).abs().max() < 6 * torch.finfo(torch.bfloat16).eps


# -- what isolation leaves alone, and what it refuses to take ---------------------------------------------------------


def test_attention_over_features_is_left_alone():
    class Features(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            tokens = torch.stack([x, torch.sin(x)], dim=-1)
            return F.scaled_dot_product_attention(tokens, tokens, tokens).sum((1, 2)).unsqueeze(1)

    x = torch.rand(2, 2, dtype=torch.float64)  # as many tokens as samples: the shape alone does not tell them apart
    assert torch.allclose(isolate(Features(), x)(x), Features()(x))


def test_a_rule_of_ones_own():
    def mixed(x: Tensor) -> Tensor:
        return torch.prod(2 + torch.sin(x), 0) * torch.sin(x[:, :1])[:, [0, 0]]

    @dudx.mixing_rule(torch.prod)
    def prod(rows, function, x, dim):
        context, queries = rows.split(x)
        leaving, entering = rows.exchange(context, queries)
        total = torch.exp(torch.log(context).sum(0, keepdim=True))
        return rows.join(total, total * entering / leaving)

    x = torch.rand(8, 2, dtype=torch.float64)
    try:
        ours = evaluate(isolate(mixed, x), x, [Laplacian()], AD())[0]
        few = evaluate(isolate(mixed, x).at([5]), x[5:6], [Laplacian()], Taylor())[0]
    finally:
        del dudx.coupling.isolation.MIXING[torch.prod]
    exact = evaluate(mixed, x, [Laplacian()], PerSampleAD())[0]
    assert (ours - exact).abs().max() < 1e-9
    assert (few - exact[5:6]).abs().max() < 1e-9


@pytest.mark.parametrize("engine", [AD(), Taylor(), FD(1e-3)], ids=["AD", "Taylor", "FD"])
@pytest.mark.parametrize(
    "mix",
    [
        lambda h: h * torch.softmax(h.T, 0).T,
        lambda h: torch.tanh(h.T - h.T.mean(0)).T - h.mean(0),
        lambda h: F.scaled_dot_product_attention(h, h, h),
        lambda h: F.scaled_dot_product_attention(*[h.unsqueeze(0).expand(8, -1, 8)] * 3)[0],
    ],
    ids=["softmax of features", "both means", "attention", "as many heads"],
)
def test_as_many_features_as_samples(mix, engine):
    """The shape alone does not tell which axis counts the rows."""
    torch.manual_seed(0)
    embed, x = nn.Linear(2, 8).double(), torch.rand(8, 2, dtype=torch.float64)

    def network(x: Tensor) -> Tensor:
        return mix(torch.sin(embed(x)))[:, :2]

    ours = evaluate(isolate(network, x), x, [D(0)], engine)[0]
    exact = evaluate(network, x, [D(0)], PerSampleAD(method="loop"))[0]
    assert (ours - exact).abs().max() < (1e-5 if isinstance(engine, FD) else 1e-11)


@EXACT
def test_a_network_may_write_into_what_a_function_has_seen(engine):
    torch.manual_seed(0)
    embed, x = nn.Linear(2, 4).double(), torch.rand(8, 2, dtype=torch.float64)

    def centred(x: Tensor) -> Tensor:
        h = torch.sin(embed(x))
        h -= h.mean(0)
        return torch.dropout(h * h, 0.5, True)

    torch.manual_seed(5)
    ours = evaluate(isolate(centred, x), x, [D(0)], engine)[0]
    torch.manual_seed(5)
    exact = evaluate(isolate(centred, x, exact=True), x, [D(0)], AD())[0]
    assert (ours - exact).abs().max() < 1e-11


def test_other_functions_for_queries_than_for_the_context_are_refused():
    calls = []

    def fickle(x: Tensor) -> Tensor:
        calls.append(x)
        return x - x.mean(0) if len(calls) % 2 else x - x.std(0)

    x = torch.rand(8, 2, dtype=torch.float64)
    with pytest.raises(UnsupportedError, match=r"same functions over the batch, in the same order.*exact=True"):
        isolate(fickle, x, approximate=True)
    assert isolate(fickle, x).way == "each alone, in a batch of its own"


@pytest.mark.parametrize("rows", [5, 25])
@BOTH
def test_other_numbers_of_rows_are_refused(rows, exact):
    model, x = made("batch norm")
    with pytest.raises(InputError, match="takes 24 rows or a multiple"):
        isolate(model, x, exact=exact)(torch.rand(rows, 2, dtype=torch.float64))


def test_a_context_of_one_is_refused():
    with pytest.raises(InputError, match="at least two samples"):
        isolate(Plain(2).double(), torch.rand(1, 2, dtype=torch.float64))


def test_verification_costs_nothing_in_the_long_run():
    model, x = Counted(made("batch norm")[0]), torch.rand(24, 2, dtype=torch.float64)
    verified = []
    for meeting in range(1, 17):
        before = len(model.rows)
        isolate(model, x)
        verified += [meeting] * (len(model.rows) > before)
    assert verified == [1, 2, 4, 8, 16]
    assert all(rows in (24, 48, 72) for rows in itertools.chain(model.rows))


@pytest.mark.parametrize("network", [lambda x: x.softmax(0), lambda x: x - x.logsumexp(0)])
def test_exponentials_stay_finite_wherever_a_sample_moves(network):
    x = torch.rand(8, 1)
    far = torch.tensor([[500.0], [-500.0]]).repeat(4, 1)
    ours = isolate(network, x)(far)
    exact = torch.cat([network(torch.where(torch.arange(8).unsqueeze(1) == i, far, x))[i] for i in range(8)])
    assert (ours.flatten() - exact).abs().max() <= 1e-4  # of numbers around 500 in single precision


def test_a_rule_is_a_file_in_its_folder():
    folder = Path(dudx.coupling.isolation.__file__).parent / "rules"
    names = {f"dudx.coupling.rules.{path.stem}" for path in folder.glob("*.py") if path.stem != "__init__"}
    assert {"statistics", "softmax", "attention", "dropout"} <= {name.rpartition(".")[2] for name in names}
    assert names <= set(sys.modules)
