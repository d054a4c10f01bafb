"""Rules over the batch: what they leave alone, axes that are easily confused, and rules of one's own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from isolation_networks import EXACT
from torch import Tensor, nn

import dudx
from dudx import AD, FD, D, Laplacian, PerSampleAD, Taylor, evaluate, isolate


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
    assert {f"{kind}_mixing" for kind in ("statistics", "softmax", "attention", "dropout")} <= {
        name.rpartition(".")[2] for name in names
    }
    assert names <= set(sys.modules)
