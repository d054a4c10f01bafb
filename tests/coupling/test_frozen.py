"""The two other meanings of a derivative in a coupled network: a frozen context, and running statistics."""

from __future__ import annotations

import copy

import pytest
import torch
from helpers import parameter_gradients, unchanged
from torch import Tensor, nn

import dudx
from dudx import AD, FD, D, Laplacian, Residual, Taylor, coupled, evaluate, frozen, isolate
from dudx.errors import InputError
from dudx.lab.run.networks import AttentionMLP

OPERATORS = [D(), D(0), D(0, 1), Laplacian()]
RESIDUAL = Residual(lambda u: u.laplacian() + u * u.x, ("x", "y"))


def batch_norms(count: int, **options: object) -> nn.Sequential:
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for i in range(count):
        layers += [nn.Linear(12 if i else 2, 12), nn.BatchNorm1d(12, **options), nn.Tanh()]
    return nn.Sequential(*layers, nn.Linear(12, 1)).double()


def points(count: int, seed: int = 1) -> Tensor:
    return torch.rand(count, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 4 - 2


# -- frozen context --------------------------------------------------------------------------------------------------


def by_fixed_statistics(model: nn.Sequential, context: Tensor) -> nn.Sequential:
    """A copy that normalises by the statistics the layers have at the context, as constants."""
    twin, h = copy.deepcopy(model), context
    for layer in twin:
        if isinstance(layer, nn.BatchNorm1d):
            layer.running_mean, layer.running_var = h.mean(0).detach(), h.var(0, correction=0).detach()
            layer.eval()
        h = layer(h)
    return twin


@pytest.mark.parametrize("rows", [24, 5, 48])
@pytest.mark.parametrize("engine", [AD(), Taylor()], ids=["AD", "Taylor"])
@pytest.mark.parametrize("count", [1, 3])
def test_batch_norm_by_the_statistics_of_the_context(count, engine, rows):
    model, context, x = batch_norms(count), points(24), points(rows, 2)
    reference = evaluate(by_fixed_statistics(model, context), x, OPERATORS, AD())
    for ours, exact in zip(evaluate(frozen(model, context), x, OPERATORS, engine), reference, strict=True):
        assert (ours - exact).abs().max() < 1e-11


class Attending(nn.Module):
    """The attention network of the paper with keys and values of a context."""

    def __init__(self, model: AttentionMLP, context: Tensor):
        super().__init__()
        self.model, self.context = model, context

    def forward(self, x: Tensor) -> Tensor:
        seen, asking = self.model.embed(self.context), self.model.embed(x)
        keys, queries = (self.model.norm(h).unsqueeze(0) for h in (seen, asking))
        return self.model.head(asking + self.model.attention(queries, keys, keys)[0].squeeze(0))


@pytest.mark.parametrize("engine", [AD(), Taylor()], ids=["AD", "Taylor"])
def test_attention_to_the_context(engine):
    torch.manual_seed(0)
    model, context, x = AttentionMLP(2, width=16).double(), points(24), points(7, 2)
    reference = evaluate(Attending(model, context), x, OPERATORS, AD())
    for ours, exact in zip(evaluate(frozen(model, context), x, OPERATORS, engine), reference, strict=True):
        assert (ours - exact).abs().max() < 1e-11
    # Parameters act on the context too.
    slopes = [
        parameter_gradients(RESIDUAL.loss(m, x, e), model)
        for m, e in ((frozen(model, context), engine), (Attending(model, context), AD()))
    ]
    assert (slopes[0] - slopes[1]).abs().max() < 1e-11


@pytest.mark.parametrize(
    ("mix", "by_hand"),
    [
        (lambda h: h * h.softmax(0), lambda h, c: h * torch.exp(h - c.logsumexp(0))),
        (lambda h: h.log_softmax(0), lambda h, c: h - c.logsumexp(0)),
        (lambda h: h * h.sum(0), lambda h, c: h * c.sum(0)),
        (lambda h: h / h.std(), lambda h, c: h / c.std()),
    ],
    ids=["softmax", "log_softmax", "sum", "std"],
)
def test_reductions_of_the_context(mix, by_hand):
    context, x = points(24), points(7, 2)
    reference = evaluate(lambda x: by_hand(torch.sin(x), torch.sin(context)), x, OPERATORS, AD())
    for engine in (AD(), Taylor()):
        ours = evaluate(frozen(lambda x: mix(torch.sin(x)), context), x, OPERATORS, engine)
        for a, b in zip(ours, reference, strict=True):
            assert (a - b).abs().max() < 1e-11


def test_at_the_context_the_value_is_the_plain_one_and_the_derivative_not_the_isolated_one():
    model, context = batch_norms(1), points(24)
    assert torch.allclose(frozen(model, context)(context), model(context))
    gaps = []
    for size in (24, 240):
        x = points(size)
        a, b = (evaluate(make(model, x), x, [D(0)], Taylor())[0] for make in (frozen, isolate))
        gaps.append(float((a - b).detach().square().mean().sqrt()))
    assert gaps[0] > 1e-3
    assert gaps[1] < gaps[0] / 4  # of the order of one over the batch size


def test_frozen_statistics_follow_the_context_once_or_stay():
    model, context = batch_norms(2), points(24)
    plain = copy.deepcopy(model)
    plain(context)
    with unchanged(model):
        evaluate(frozen(model, context, update_statistics=False), points(7, 2), [Laplacian()], AD())
    evaluate(frozen(model, context), points(7, 2), [Laplacian()], AD())
    for ours, expected in zip(model.buffers(), plain.buffers(), strict=True):
        assert torch.allclose(ours, expected, rtol=1e-12, atol=0)


# -- running statistics ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", [AD(), Taylor(), FD(1e-3)], ids=["AD", "Taylor", "FD"])
def test_every_engine_is_right_as_it_is(engine):
    model, x = batch_norms(2), points(24)
    for _ in range(3):
        model(x)
    twin = copy.deepcopy(model).eval()
    with dudx.running_statistics(model) as pointwise:
        assert not coupled(pointwise, x)
        results = evaluate(pointwise, x, OPERATORS, engine)
        slope = parameter_gradients(RESIDUAL.loss(pointwise, x, engine), model)
    tolerance = 1e-4 if isinstance(engine, FD) else 1e-11
    for ours, exact in zip(results, evaluate(twin, x, OPERATORS, AD()), strict=True):
        assert (ours - exact).abs().max() < tolerance
    exact = parameter_gradients(RESIDUAL.loss(twin, x, AD()), twin)
    assert (slope - exact).abs().max() < tolerance * (1 + exact.abs().max())
    assert coupled(model, x)


@pytest.mark.parametrize("options", [{}, {"momentum": None}, {"momentum": 0.5, "affine": False}])
def test_statistics_are_updated_once_on_entering(options):
    model, x = batch_norms(1, **options), points(24)
    plain = copy.deepcopy(model)
    for batch in (x, 2 * x + 1):  # one layer sees what it would see in a plain forward pass
        plain(batch)
        with dudx.running_statistics(model, batch):
            for _ in range(3):
                evaluate(model, batch, [Laplacian()], FD(1e-2))
        for ours, expected in zip(model.buffers(), plain.buffers(), strict=True):
            assert torch.allclose(ours, expected, rtol=1e-12, atol=0)


def test_later_layers_see_what_running_statistics_make_of_the_batch():
    model, x = batch_norms(2, momentum=1.0), points(24)
    with dudx.running_statistics(model, x):
        hidden = model[:4](x)
    # With momentum 1 the statistics of the second layer are those of its input, the first layer normalised already.
    assert torch.allclose(model[4].running_mean, hidden.mean(0))
    assert torch.allclose(model[4].running_var, hidden.var(0))


def test_positions_count_as_samples_do():
    model, x = nn.BatchNorm1d(3).double(), torch.rand(6, 3, 5, dtype=torch.float64)
    plain = copy.deepcopy(model)
    plain(x)
    with dudx.running_statistics(lambda rows: model(x).flatten(1), points(6)):
        pass
    for ours, expected in zip(model.buffers(), plain.buffers(), strict=True):
        assert torch.allclose(ours, expected, rtol=1e-12, atol=0)


def test_losses_of_two_batches_share_a_backward_pass():
    model = batch_norms(1)
    losses = []
    for x in (points(24), points(16, 2)):
        with dudx.running_statistics(model, x):
            losses.append(RESIDUAL.loss(model, x, Taylor()))
    sum(losses).backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_modes_are_put_back_and_nothing_else_is_touched():
    model, x = nn.Sequential(batch_norms(2), nn.Dropout(0.5)), points(24)
    model[0][1].eval()
    before = [module.training for module in model.modules()]
    with dudx.running_statistics(model, x):  # batch norm evaluates, all else trains
        assert all(module.training != isinstance(module, nn.BatchNorm1d) for module in model.modules())
    assert [module.training for module in model.modules()] == before
    with pytest.raises(InputError), dudx.running_statistics(model, x[0]):
        pass
    assert [module.training for module in model.modules()] == before
    assert not any((*m._forward_hooks, *m._forward_pre_hooks) for m in model.modules())


def test_there_must_be_statistics():
    plain = nn.Linear(2, 1)
    with pytest.raises(InputError, match="no batch norm layer in training mode"), dudx.running_statistics(plain):
        pass
    with (
        pytest.raises(InputError, match="keeps no running statistics"),
        dudx.running_statistics(batch_norms(1, track_running_stats=False)),
    ):
        pass


@pytest.mark.parametrize("momentum", [0.1, None])
def test_one_sample_has_no_variance_to_follow(momentum):
    model = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4, momentum=momentum), nn.Linear(4, 1)).double()
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    with pytest.raises(InputError, match="two samples"), dudx.running_statistics(model, torch.rand(1, 2).double()):
        pass
    assert all(torch.equal(buffer, before[name]) for name, buffer in model.named_buffers())
    assert model[1].training
