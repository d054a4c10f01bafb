from __future__ import annotations

import torch
from helpers import OnceDifferentiable
from torch import nn

from dudx import D, Laplacian, isolate, recommend
from dudx.recommendation import _parameters


def test_exact_engines_come_with_their_times_and_differences_with_their_error(capsys):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1))
    ranked = recommend(model, torch.rand(256, 2), [D(0), Laplacian()], repeats=2)
    by_name = {c.name: c for c in ranked}
    assert set(by_name) == {"AD", "Taylor", "FD"}
    assert all(c.seconds > 0 for c in ranked)
    assert by_name["AD"].error == 0
    assert by_name["Taylor"].error < 1e-5 < by_name["FD"].error < 0.1
    assert "ms a step" in capsys.readouterr().out
    assert all(p.grad is None for p in model.parameters())


def test_an_engine_without_a_rule_is_listed_with_the_reason():
    ranked = recommend(lambda x: torch.digamma(x + 3)[:, :1], torch.rand(64, 2), [D(0, 0)], repeats=1, show=False)
    (taylor,) = [c for c in ranked if c.name == "Taylor"]
    assert taylor.seconds != taylor.seconds
    assert "no rule for" in taylor.note
    assert ranked[0].name in ("AD", "FD")


def test_what_cannot_be_differentiated_twice_leaves_differences():
    class Model(nn.Linear):
        def forward(self, x):
            return torch.erfinv(0.5 * OnceDifferentiable.apply(super().forward(x)))  # for which Taylor has no rule

    x = torch.rand(64, 2, dtype=torch.float64)
    ranked = recommend(Model(2, 4).double(), x, [Laplacian()], repeats=1, show=False)
    by_name = {c.name: c for c in ranked}
    assert ranked[0].name == "FD"
    assert ranked[0].seconds > 0
    assert "once_differentiable" in by_name["AD"].note


def test_a_coupled_network_is_timed_isolated():
    model = nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 1)).double()
    ranked = recommend(model, torch.rand(32, 2, dtype=torch.float64), [Laplacian()], repeats=1, show=False)
    assert ranked[0].note == "on dudx.isolate(model, x)"
    assert ranked[-1].name == "PerSampleAD"


def test_a_training_step_differentiates_all_parameters_whatever_the_parts_are_called():
    class Wrapper(nn.Module):
        def __init__(self):
            super().__init__()
            self.model, self.last = nn.Linear(2, 8), nn.Linear(8, 1)

        def forward(self, x):
            return self.last(torch.tanh(self.model(x)))

    model, x = Wrapper(), torch.rand(8, 2)
    assert len(_parameters(model)) == 4
    assert len(_parameters(isolate(model, x))) == 4


def test_a_large_batch_is_timed_in_slices_and_compiled_graphs_too():
    model = nn.Sequential(nn.Linear(2, 512), nn.Tanh(), nn.Linear(512, 1))
    ranked = recommend(model, torch.rand(1024, 2), [Laplacian()], repeats=1, show=False, compile=True)
    by_name = {c.name: c for c in ranked}
    assert set(by_name) == {"AD", "Taylor", "Taylor compiled", "FD", "FD compiled"}
    assert by_name["Taylor compiled"].compiled
    assert by_name["Taylor compiled"].note.startswith("slices of 256, compiled in")
    assert by_name["Taylor"].note == "slices of 256"
