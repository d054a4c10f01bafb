from __future__ import annotations

import itertools

import torch
from helpers import OnceDifferentiable
from torch import nn

from dudx import AD, D, Laplacian, Taylor, isolate, recommend
from dudx.diagnose import recommendation
from dudx.diagnose.recommendation import _parameters


def test_exact_engines_come_with_their_times_and_differences_with_their_error(capsys):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1))
    ranked = recommend(model, torch.rand(256, 2), [D(0), Laplacian()], repeats=2)
    by_name = {c.name: c for c in ranked}
    assert set(by_name) == {"AD", "Taylor", "FD"}
    assert all(c.seconds > 0 for c in ranked)
    assert by_name["AD"].error == 0
    assert by_name["Taylor"].error < 1e-5 < by_name["FD"].error < 0.1
    assert capsys.readouterr().out == ""
    assert ranked[:2] == (ranked[0], ranked[1])
    table = repr(ranked).splitlines()
    assert table[0].split() == ["engine", "ms", "a", "step", "error", "note"]
    assert [line.split()[0] for line in table[1:]] == [c.name for c in ranked]
    assert all(p.grad is None for p in model.parameters())


def test_an_engine_without_a_rule_is_listed_with_the_reason():
    model = nn.Sequential(nn.Linear(2, 1), nn.Identity())
    model[1].forward = lambda x: OnceDifferentiable.apply(x)
    ranked = recommend(model, torch.rand(64, 2), [D(0)], repeats=1)
    (taylor,) = [c for c in ranked if c.name == "Taylor"]
    assert taylor.seconds != taylor.seconds
    assert "once_differentiable" in taylor.note
    assert ranked[0].name in ("AD", "FD")


def test_what_cannot_be_differentiated_twice_leaves_differences():
    class Model(nn.Linear):
        def forward(self, x):
            return torch.erfinv(0.5 * OnceDifferentiable.apply(super().forward(x)))

    x = torch.rand(64, 2, dtype=torch.float64)
    ranked = recommend(Model(2, 4).double(), x, [Laplacian()], repeats=1)
    by_name = {c.name: c for c in ranked}
    assert ranked[0].name == "FD"
    assert ranked[0].seconds > 0
    assert "once_differentiable" in by_name["AD"].note


def test_a_coupled_network_is_timed_isolated():
    model = nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 1)).double()
    ranked = recommend(model, torch.rand(32, 2, dtype=torch.float64), [Laplacian()], repeats=1)
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


def test_a_large_batch_is_timed_in_slices_and_compiled_graphs_too(only_traced):
    model = nn.Sequential(nn.Linear(2, 512), nn.Tanh(), nn.Linear(512, 1))
    ranked = recommend(model, torch.rand(1024, 2), [Laplacian()], repeats=1, compile=True)
    by_name = {c.name: c for c in ranked}
    assert set(by_name) == {"AD", "Taylor", "Taylor compiled", "FD", "FD compiled"}
    assert by_name["Taylor compiled"].compiled
    assert by_name["Taylor compiled"].note.startswith("slices of 256, compiled in")
    assert by_name["Taylor"].note == "slices of 256"


def test_the_engines_are_those_of_the_folder(monkeypatch):
    class Other(AD):
        name = "other"

    model, x = nn.Linear(2, 1), torch.rand(8, 2)
    monkeypatch.setattr(recommendation, "engines", lambda: {"other": Other})
    assert [c.name for c in recommend(model, x, [D(0)], repeats=1)] == ["Other"]
    monkeypatch.setattr(recommendation, "_NOT_COMPARED", {"other"})
    assert not recommend(model, x, [D(0)], repeats=1)


def test_an_engine_with_an_error_has_to_be_faster_by_a_quarter(monkeypatch):
    class Rough(Taylor):
        approximate = True

    class Clock:
        """Each step takes a second; those of Rough as long as is said."""

        def __init__(self, rough):
            self.now, self.ticks = 0.0, itertools.cycle([0.0, 1.0, 0.0, rough])

        def perf_counter(self):
            self.now += next(self.ticks)
            return self.now

    monkeypatch.setattr(recommendation, "engines", lambda: {"ad": AD, "rough": Rough})
    for rough, first in ((0.9, "AD"), (0.7, "Rough")):
        monkeypatch.setattr(recommendation, "time", Clock(rough))
        assert recommend(nn.Linear(2, 1), torch.rand(8, 2), [D(0)], repeats=2)[0].name == first
