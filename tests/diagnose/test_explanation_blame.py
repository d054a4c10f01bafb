"""`dudx.explain` blames the modules that mix samples, and none that only pass it on."""

from __future__ import annotations

import pytest
import torch
from architectures import ZOO, Dice, made
from helpers import points
from torch import Tensor, nn

from dudx import explain
from dudx.lab.run.networks import AttentionMLP, BatchNormMLP


def blamed(model, x=None):
    return [(m.name, m.type) for m in explain(model, points(24, 2) if x is None else x, points=4).modules]


class Mean(nn.Module):
    """Mixes by its own code, around a layer that does not."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(8, 8)

    def forward(self, h: Tensor) -> Tensor:
        return self.inner(h) + h.mean(0)


class Pool(nn.Module):
    """Condenses the batch to one row."""

    def forward(self, h: Tensor) -> Tensor:
        return h.mean(0, keepdim=True)


class WithPool(nn.Module):
    """A summary of the batch goes through a layer and back to the rows; who makes the summary can be chosen."""

    def __init__(self, pool: nn.Module | None, used: bool = True):
        super().__init__()
        self.pool, self.used = pool, used
        self.first, self.across, self.last = nn.Linear(2, 8), nn.Linear(8, 8), nn.Linear(8, 1)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(self.first(x))
        summary = self.across(h.mean(0, keepdim=True) if self.pool is None else self.pool(h))
        return self.last(torch.tanh(h + summary if self.used else h))


class ByName(nn.Module):
    """Arguments by name, results in dictionaries, and one layer called twice."""

    def __init__(self):
        super().__init__()
        self.layer, self.norm, self.last = nn.Linear(2, 2), Named(), nn.Linear(2, 1)

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm(given={"h": torch.tanh(self.layer(self.layer(x)))})
        return self.last(h["h"][0])


class Named(nn.Module):
    def forward(self, *, given: dict[str, Tensor]) -> dict[str, list[Tensor]]:
        return {"h": [given["h"] - given["h"].mean(0)]}


def test_one_batch_norm():
    assert blamed(BatchNormMLP(2).double()) == [("2", "BatchNorm1d")]


def test_attention_over_the_batch_and_not_the_layers_around_it():
    assert blamed(AttentionMLP(2).double()) == [("attention", "MultiheadAttention")]


@pytest.mark.parametrize("training", [True, False])
def test_the_attention_inside_a_transformer_layer(training):
    name = "transformer over the batch"
    found = blamed(made(name, torch.float64, training))
    assert found == [("1.inner.self_attn", "MultiheadAttention")]


def test_every_module_that_adds_influence_and_none_that_passes_it_on():
    block = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Tanh())
    model = nn.Sequential(
        nn.Linear(2, 8), nn.BatchNorm1d(8), nn.Tanh(), block, nn.LayerNorm(8), Mean(), nn.Linear(8, 1)
    )
    assert blamed(model.double()) == [("1", "BatchNorm1d"), ("3.1", "BatchNorm1d"), ("5", "Mean")]


def test_code_around_the_modules_is_blamed_on_the_module_it_belongs_to():
    """The influence is added before the last layer and would be seen behind it."""
    model = nn.Sequential(nn.Linear(2, 2), WithPool(pool=None), nn.Linear(1, 1)).double()
    assert blamed(model) == [("1", "WithPool")]


def test_code_of_the_network_itself():
    model = WithPool(pool=None).double()
    assert blamed(model) == [("", "WithPool")]
    assert "(its own code)" in str(explain(model, points(24, 2)))


def test_a_module_without_rows_is_blamed_for_what_it_condenses():
    assert blamed(WithPool(Pool()).double()) == [("pool", "Pool")]


def test_a_summary_that_nobody_uses_is_nobodys_fault():
    model = nn.Sequential(WithPool(Pool(), used=False), nn.BatchNorm1d(1)).double()
    assert blamed(model) == [("1", "BatchNorm1d")]


def test_arguments_by_name_and_results_in_containers():
    assert blamed(ByName().double()) == [("norm", "Named")]


def test_noise_is_not_blamed():
    model = nn.Sequential(nn.Linear(2, 8), Dice(1e-3), nn.BatchNorm1d(8), nn.Linear(8, 1)).double()
    assert blamed(model) == [("2", "BatchNorm1d")]


def test_a_function_is_blamed_as_a_whole():
    def spread(x: Tensor) -> Tensor:
        return x - x.mean(0)

    found = explain(spread, points(24, 2))
    assert [(m.name, m.type) for m in found.modules] == [("", "spread")]
    assert found.mode == "function"


def test_networks_inside_functions_are_looked_into():
    net = BatchNormMLP(2, 2).double()
    wrapped = explain(lambda x: net(x)[:, :1], points(24, 2))
    assert [(m.name, m.type) for m in wrapped.modules] == [("net.2", "BatchNorm1d")]
    assert wrapped.mode == "training"
    assert wrapped.gradient.largest > 0.1
    assert wrapped.remedies[-1].startswith("model.eval(), if the function with running statistics is meant")
    around = explain(lambda x: net(x - x.mean(0)) - x.mean(0), points(24, 2))
    assert [m.name for m in around.modules] == ["", "net.2"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_scripted_network_is_blamed_as_a_whole():
    model = torch.jit.script(nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)).double())
    assert [name for name, _ in blamed(model)] == [""]


def test_a_compiled_network_is_looked_into():
    assert blamed(torch.compile(BatchNormMLP(2).double())) == [("2", "BatchNorm1d")]


def test_a_closed_gate_is_mentioned():
    model = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)).double()
    nn.init.zeros_(model[2].weight)
    found = explain(model, points(24, 2))
    assert not found.coupled
    assert found.modules == ()
    assert "Samples mix in 1 (BatchNorm1d), but the output does not show it" in str(found)


@pytest.mark.parametrize("name", ZOO)
def test_the_verdict_is_the_detectors_and_somebody_is_to_blame(name):
    for training, expected in enumerate(reversed(ZOO[name][1])):
        found = explain(made(name, torch.float64, bool(training)), points(40, 2), points=4)
        assert found.coupled is expected
        assert bool(found.modules) is expected
        assert found.change > 0 if expected else found.change == 0
        assert not any("Samples mix in" in note for note in found.notes)
