"""Isolated networks against the per-sample reference: each sample's own derivative, the others held still."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import dudx
from dudx import AD, FD, CoupledModelError, D, InputError, Laplacian, PerSampleAD, Taylor, evaluate, isolate


class BatchNorm(nn.Module):
    def __init__(self, inputs: int):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(inputs, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1)
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


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


class ByHand(nn.Module):
    """Reductions over the batch written out."""

    def __init__(self, inputs: int, kind: str = "normalised"):
        super().__init__()
        self.a, self.b, self.kind = nn.Linear(inputs, 16), nn.Linear(16, 1), kind

    def forward(self, x: Tensor) -> Tensor:
        h = torch.sin(self.a(x))
        if self.kind == "normalised":
            h = (h - h.mean(0)) / (h.std(0) + 0.1)
        elif self.kind == "kept axis":
            h = (h - torch.mean(h, dim=0, keepdim=True)) * torch.var(h, 0, correction=0, keepdim=True)
        elif self.kind == "softmax":
            h = h * torch.softmax(h, dim=0)
        elif self.kind == "sum":
            h = torch.tanh(h + 0.1 * h.sum(dim=0))
        return self.b(torch.tanh(h))


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
    "attention": Attention,
    "attention with weights": lambda inputs: Attention(inputs, need_weights=True),
    "one head": lambda inputs: Attention(inputs, heads=1),
    "mean and deviation": ByHand,
    "mean and variance, kept axis": lambda inputs: ByHand(inputs, "kept axis"),
    "softmax over the batch": lambda inputs: ByHand(inputs, "softmax"),
    "sum over the batch": lambda inputs: ByHand(inputs, "sum"),
    "not coupled": Plain,
}


def made(name: str, inputs: int = 2, size: int = 24, dtype: torch.dtype = torch.float64) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    model = NETWORKS[name](inputs).to(dtype)
    return model, (torch.rand(size, inputs, dtype=torch.float64) * 4 - 2).to(dtype)


@pytest.mark.parametrize("engine", [AD(), Taylor()], ids=["AD", "Taylor"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-11)])
@pytest.mark.parametrize("name", NETWORKS)
def test_isolated_engines_agree_with_the_per_sample_reference(name, dtype, tolerance, engine):
    model, x = made(name, dtype=dtype)
    operators = [D(), D(0), D(1), D(0, 1), Laplacian()]
    reference = evaluate(model, x, operators, PerSampleAD())
    for ours, exact in zip(evaluate(isolate(model, x), x, operators, engine), reference, strict=True):
        assert (ours - exact).abs().max() < tolerance * (1 + exact.abs().max())


@pytest.mark.parametrize("engine", [AD(), Taylor()], ids=["AD", "Taylor"])
@pytest.mark.parametrize(("inputs", "size"), [(1, 8), (3, 8), (2, 200)])
@pytest.mark.parametrize("name", ["batch norm", "attention"])
def test_whatever_the_batch_and_the_dimension(name, inputs, size, engine):
    model, x = made(name, inputs, size)
    for operator in (D(0), Laplacian()):
        ours, exact = (
            evaluate(m, x, [operator], e)[0] for m, e in ((isolate(model, x), engine), (model, PerSampleAD()))
        )
        assert (ours - exact).abs().max() < 1e-11


@pytest.mark.parametrize("name", NETWORKS)
def test_gradients_with_respect_to_parameters_flow_through_the_context_too(name):
    model, x = made(name)
    gradients = []
    for network, engine in (
        (model, PerSampleAD(method="loop")),
        (isolate(model, x), AD()),
        (isolate(model, x), Taylor()),
    ):
        model.zero_grad()
        dudx.Residual(lambda u: u.laplacian() + u * u.x, ("x", "y")).loss(network, x, engine).backward()
        gradients.append(torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]))
    for ours in gradients[1:]:
        assert (ours - gradients[0]).abs().max() < 1e-10 * (1 + gradients[0].abs().max())


@pytest.mark.parametrize("name", ["batch norm", "attention", "mean and deviation"])
def test_differences_of_an_isolated_network_converge_at_their_order(name):
    model, x = made(name)
    (exact,) = evaluate(model, x, [Laplacian()], PerSampleAD())
    errors = [(evaluate(isolate(model, x), x, [Laplacian()], FD(h))[0] - exact).abs().max() for h in (2e-2, 1e-2)]
    assert torch.log2(errors[0] / errors[1]).item() == pytest.approx(2, abs=0.15)


def test_the_usual_idiom_is_far_off_where_the_isolated_network_is_exact():
    model, x = made("batch norm")
    (exact,) = evaluate(model, x, [Laplacian()], PerSampleAD())
    (wrong,) = evaluate(model, x, [Laplacian()], AD(coupled="ignore"))
    assert (wrong - exact).abs().max() > 1e-2 * exact.abs().max()


def test_running_statistics_are_updated_once_a_call_as_in_a_plain_forward_pass():
    model, x = made("batch norm")
    plain = copy.deepcopy(model)
    isolated = isolate(model, x)
    assert model.layers[1].running_mean.abs().max() == 0  # making it changes nothing
    plain(x)
    isolated(x)
    for ours, expected in zip(model.layers[1].buffers(), plain.layers[1].buffers(), strict=True):
        assert torch.allclose(ours, expected)


def test_statistics_stay_when_asked_to():
    model, x = made("batch norm")
    before = [buffer.clone() for buffer in model.layers[1].buffers()][:2]
    isolate(model, x, update_statistics=False)(x)
    for ours, expected in zip(list(model.layers[1].buffers())[:2], before, strict=True):
        assert torch.equal(ours, expected)


def test_in_evaluation_mode_batch_norm_is_left_alone():
    model, x = made("batch norm")
    model.eval()
    assert torch.allclose(isolate(model, x)(x), model(x))


def test_attention_over_features_is_left_alone():
    class Features(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            tokens = torch.stack([x, torch.sin(x)], dim=-1)
            return F.scaled_dot_product_attention(tokens, tokens, tokens).sum((1, 2)).unsqueeze(1)

    x = torch.rand(2, 2, dtype=torch.float64)  # as many tokens as samples: the shape alone does not tell them apart
    assert torch.allclose(isolate(Features(), x)(x), Features()(x))


@pytest.mark.parametrize(
    "mix",
    [lambda h: h + h.cumsum(0), lambda h: h @ (h.T @ h), lambda h: h - h.max(0).values, lambda h: h - h.sort(0).values],
    ids=["cumsum", "gram matrix", "max", "sort"],
)
def test_mixing_without_a_rule_is_refused_rather_than_computed_wrongly(mix):
    x = torch.rand(8, 2, dtype=torch.float64)
    with pytest.raises(CoupledModelError, match=r"no rule for .*PerSampleAD.*mixing_rule"):
        isolate(lambda x: mix(x)[:, :1], x)


def test_a_rule_of_ones_own():
    def mixed(x: Tensor) -> Tensor:
        return torch.logsumexp(torch.sin(x), 0) * torch.sin(x[:, :1])[:, [0, 0]]

    @dudx.mixing_rule(torch.logsumexp)
    def logsumexp(rows, function, x, dim):
        context, queries = rows.split(torch.exp(x))
        total = context.sum(0)
        return torch.log(rows.join(total.expand_as(context), total + queries - context))

    x = torch.rand(8, 2, dtype=torch.float64)
    try:
        ours = evaluate(isolate(mixed, x), x, [Laplacian()], AD())[0]
    finally:
        del dudx.isolation.MIXING[torch.logsumexp]
    assert (ours - evaluate(mixed, x, [Laplacian()], PerSampleAD())[0]).abs().max() < 1e-11


def test_second_hand_influence_fades_with_the_batch():
    """Two mixing layers: exact only to first-hand influence, with an error of the order of one over the batch size."""

    def error(size: int) -> float:
        torch.manual_seed(0)
        layers = [nn.Linear(2, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Linear(16, 16), nn.BatchNorm1d(16), nn.Tanh()]
        model = nn.Sequential(*layers, nn.Linear(16, 1)).double()
        x = torch.rand(size, 2, dtype=torch.float64) * 4 - 2
        exact, ours = (evaluate(m, x, [D(0)], e)[0] for m, e in ((model, PerSampleAD()), (isolate(model, x), AD())))
        return float((ours - exact).detach().square().mean().sqrt())

    small, large = error(16), error(128)
    assert 0 < large < small / 4


@pytest.mark.parametrize("rows", [5, 25])
def test_other_numbers_of_rows_are_refused(rows):
    model, x = made("batch norm")
    with pytest.raises(InputError, match="takes 24 rows or a multiple"):
        isolate(model, x)(torch.rand(rows, 2, dtype=torch.float64))


def test_a_context_of_one_is_refused():
    with pytest.raises(InputError, match="at least two samples"):
        isolate(Plain(2).double(), torch.rand(1, 2, dtype=torch.float64))
