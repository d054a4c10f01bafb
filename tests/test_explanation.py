"""`dudx.explain`: the modules it blames, the errors it measures, what it advises, and that it leaves no trace."""

from __future__ import annotations

import copy
import dataclasses
import math
import pickle
import re

import pytest
import torch
from helpers import Counted, mlp, points, unchanged
from test_detector import ZOO, Captured, Dice, layers, made
from torch import Tensor, nn

from dudx import AD, D, InputError, Laplacian, ModelError, PerSampleAD, evaluate, explain
from dudx.coupling.measuring import RelativeError
from dudx.lab.run.networks import AttentionMLP, BatchNormMLP


def blamed(model, x=None):
    return [(m.name, m.type) for m in explain(model, points(24, 2) if x is None else x, points=4).modules]


# -- the modules it blames -----------------------------------------------------------------------------------------


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


# -- the errors it measures ----------------------------------------------------------------------------------------


def test_the_errors_are_those_of_the_idiom():
    model, x = BatchNormMLP(2).double(), points(40, 2)
    found = explain(model, x)
    own, wrong = (
        [torch.cat(evaluate(model, x, what, engine), 1).detach() for what in ([D(0), D(1)], [Laplacian()])]
        for engine in (PerSampleAD(method="loop"), AD(coupled="ignore"))
    )
    for error, true, ours in zip((found.gradient, found.laplacian), own, wrong, strict=True):
        relative = (ours - true).norm(dim=1) / true.norm(dim=1).square().mean().sqrt()
        assert error.median == pytest.approx(float(relative.median()))
        assert error.largest == pytest.approx(float(relative.max()))
        assert error.largest > 0.1
    assert found.way == "each alone, in one pass"
    assert found.isolated.largest < 1e-10
    assert found.points == 40


def test_known_errors():
    """Of x minus the mean the idiom finds no derivative at all; of a neighbour's value one where there is none."""
    found = explain(lambda x: x - x.mean(0), points(24, 1))
    assert (found.gradient.median, found.gradient.largest) == pytest.approx((1, 1))
    found = explain(lambda x: x.roll(1, 0), points(24, 1))
    assert found.gradient.median == math.inf
    assert found.laplacian.largest == 0
    assert "infinite" in str(found)


def test_each_output_has_its_own_scale():
    """The second output is a million times smaller, and its error as large."""
    found = explain(lambda x: torch.cat([1e6 * x.sin(), x - x.mean(0)], 1), points(24, 1))
    assert found.gradient.largest == pytest.approx(1)


def test_independent_samples_leave_no_error():
    found = explain(mlp(), points(40, 2))
    assert found.gradient.largest < 1e-12
    assert found.laplacian.largest < 1e-12
    assert (found.way, found.isolated, found.change) == (None, None, 0)


def test_several_mixing_layers_are_isolated_exactly_and_the_approximation_is_measured():
    model = nn.Sequential(BatchNormMLP(2, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 1)).double()
    found = explain(model, points(24, 2))
    assert found.way == "each alone, in a batch of its own"
    assert found.isolated.largest < 1e-10 < 0.01 < found.gradient.largest
    assert found.remedies[0].startswith("dudx.isolate(model, x) in place of the model, with any engine (each alone, in")
    left_out = re.match(r"dudx\.isolate\(model, x, approximate=True\).* leaves out ([\d.]+) %", found.remedies[1])
    assert 0.01 < float(left_out[1]) < 100


def test_random_numbers_are_the_same_for_both_methods():
    model = layers(nn.Dropout(0.5)).double()
    found = explain(model, points(24, 2))
    assert found.gradient.largest < 1e-12
    assert found.notes == ("The network draws random numbers; the figures are for one draw.",)
    found = explain(nn.Sequential(model, nn.BatchNorm1d(1)).double(), points(24, 2))
    assert found.isolated is None  # another number of rows is another draw


def test_rows_that_are_not_finite_are_left_out():
    found = explain(lambda x: x.sqrt(), points(24, 2))
    assert found.gradient.largest == 0
    nowhere = explain(lambda x: x.sin() * math.nan, points(24, 2))
    assert nowhere.gradient is None
    assert any("no true value is finite" in note for note in nowhere.notes)
    assert "not measured" in str(nowhere)


def test_what_cannot_be_differentiated_twice_is_said():
    anchors = points(3, 2, seed=1)
    found = explain(lambda x: torch.cdist(x - x.mean(0), anchors, p=3), points(24, 2))
    assert found.gradient.largest > 0.1
    assert found.laplacian is None
    assert any(note.startswith("The error of the Laplacian cannot be measured: ") for note in found.notes)


def test_what_only_the_loop_can_run_is_looped():
    def branching(x: Tensor) -> Tensor:
        return x * (2 + x.mean()) if x.mean() > 0 else x * (1 + x.mean())

    found = explain(branching, points(24, 1))
    assert found.gradient.median > 0
    assert found.way == "each alone, in a batch of its own"
    assert found.isolated.largest < 1e-12


def test_a_large_batch_costs_no_more_than_a_part_of_it():
    model = Counted(BatchNormMLP(2).double())
    found = explain(model, points(20_000, 2))
    assert found.points == 128
    assert max(model.rows) <= 4 * 128  # the isolated network has the context and the queries
    assert "at 128 points in a batch of their own" in str(found)
    assert explain(mlp(100), points(500, 100)).points == 25  # many dimensions, fewer points


@pytest.mark.parametrize("count", [1, 2, 5])
def test_small_batches(count):
    found = explain(BatchNormMLP(2).double(), points(count, 2))
    assert found.modules[0].name == "2"
    assert found.gradient.largest > 0 or count == 2  # of two, normalised, neither moves


def test_a_network_for_one_batch_only():
    found = explain(Captured(40, mix=True).double(), points(40, 2))
    assert found.points == 40
    found = explain(Captured(600, mix=True).double(), points(600, 2))
    assert (found.coupled, found.points, found.gradient) == (True, 0, None)
    assert "takes no fewer than all 600 points" in str(found)


# -- what it advises -----------------------------------------------------------------------------------------------


def test_the_report_in_full():
    found = explain(lambda x: x - x.mean(0), torch.linspace(0, 1, 24, dtype=torch.float64).unsqueeze(1))
    found = dataclasses.replace(found, isolated=RelativeError(0.0, 2e-16), network="centred")
    assert str(found) == "\n".join(
        [
            "centred: samples influence each other (24 points, 1 inputs, float64).",
            "",
            "Where they mix, and how much rows that stay change when others move:",
            "  module          type      change",
            f"  (its own code)  <lambda>  {100 * found.change:>4.0f} %",
            f"  (output)                  {100 * found.change:>4.0f} %",
            "",
            'What the batched idiom, AD(coupled="ignore"), gets wrong at 24 points:',
            "  error      median  largest",
            "  gradient    100 %    100 %",
            "  Laplacian     0 %      0 %",
            "",
            "What to use:",
            f"  {found.remedies[0]}",
        ]
    )
    assert found.remedies[0].startswith(
        "dudx.isolate(model, x) in place of the model, with any engine (each alone, in one pass): largest error here"
    )
    assert repr(found) == str(found)


def test_independent_samples_may_be_differentiated_by_any_engine():
    assert explain(mlp(), points(8, 2)).remedies == ("Any engine; dudx.Taylor() is exact.",)
    found = explain(lambda x: torch.special.bessel_j0(x + 3), points(8, 2))
    assert found.remedies == ("Any engine but dudx.Taylor(); dudx.AD() is exact.",)
    assert any(note.startswith("dudx.Taylor() refuses: ") and "bessel_j0" in note for note in found.notes)


def test_evaluation_mode_is_offered_where_it_helps():
    helps = "model.eval(), if the function with running statistics is meant: independent, but another function."
    helpless = "In evaluation mode, model.eval(), they influence each other as well."
    model = BatchNormMLP(2).double()
    assert explain(model, points(24, 2)).remedies[-1] == helps
    model.eval()[2].train()
    partly = explain(model, points(24, 2))
    assert (partly.mode, partly.remedies[-1]) == ("mixed", helps)
    assert "BatchNormMLP, partly in training mode: samples influence each other" in str(partly)
    assert explain(AttentionMLP(2).double(), points(24, 2)).remedies[-1] == helpless
    evaluating = explain(AttentionMLP(2).double().eval(), points(24, 2))
    assert evaluating.mode == "evaluation"
    assert not any("model.eval()" in line for line in evaluating.remedies)


def test_a_function_without_a_rule_is_named():
    found = explain(lambda x: x.sort(0).values, points(24, 2))
    assert found.way == "each alone, in a batch of its own"
    assert found.isolated.largest < 1e-12
    assert len(found.remedies) == 1
    named = "The samples cannot all pass together: isolate has no rule for torch.Tensor.sort over the batch"
    assert any(note.startswith(named) for note in found.notes)


def test_nothing_is_printed(capsys):
    found = explain(mlp(), points(8, 2))
    assert capsys.readouterr().out == ""
    print(found)
    assert capsys.readouterr().out.startswith("Sequential in training mode: samples are independent (8 points")


# -- no trace, and clear refusals ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["batch norm", "dropout", "spectral norm", "old spectral norm", "noise, and a mean"])
def test_the_network_is_left_as_it_was(name):
    model = made(name, torch.float64, training=True)
    model[-1].eval()
    seen = []
    own = model[0].register_forward_hook(lambda *_: seen.append(1))
    hooks = [(list(m._forward_hooks), list(m._forward_pre_hooks)) for m in model.modules()]
    modes = [m.training for m in model.modules()]
    parameters = [p.clone() for p in model.parameters()]
    with unchanged(model):
        explain(model, points(24, 2))
    assert [(list(m._forward_hooks), list(m._forward_pre_hooks)) for m in model.modules()] == hooks
    assert [m.training for m in model.modules()] == modes
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), parameters, strict=True))
    assert seen
    own.remove()


def test_hooks_are_removed_when_the_network_fails():
    class Fails(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.calls = nn.Linear(2, 1), 0

        def forward(self, x: Tensor) -> Tensor:
            if self.layer._forward_hooks:
                raise ValueError("watched")
            return self.layer(x)

    model = Fails().double().eval()
    with pytest.raises(ValueError, match="watched"):
        explain(model, points(24, 2))
    assert not model.layer._forward_hooks
    assert not model.layer._forward_pre_hooks


def test_the_points_stay_as_they_are():
    x = points(24, 2).requires_grad_()
    before = x.detach().clone()
    explain(BatchNormMLP(2).double(), x)
    assert torch.equal(x, before)
    assert x.grad is None


def test_an_explanation_cannot_be_changed():
    found = explain(mlp(), points(8, 2))
    assert pickle.loads(pickle.dumps(found)) == copy.deepcopy(found) == found
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.coupled = True


@pytest.mark.parametrize(
    ("call", "kind", "sentence"),
    [
        (lambda x: explain(mlp(), x[0]), InputError, r"points must have shape \(B, d\)"),
        (lambda x: explain(mlp(), [1.0]), InputError, r"points must be a torch tensor"),
        (lambda x: explain(mlp(), x.float()), InputError, r"model is torch.float64 and the points are torch.float32"),
        (lambda x: explain(nn.Tanh, x), InputError, r"model is the class Tanh"),
        (lambda x: explain(3, x), InputError, r"model must be callable"),
        (lambda x: explain(torch.sin, x.to("meta")), InputError, r"meta device holds no values"),
        (lambda x: explain(mlp(), x, points=1), InputError, r"points must be a whole number, 2 or more; got 1"),
        (lambda x: explain(mlp(), x, points=2.5), InputError, r"points must be a whole number, 2 or more; got 2.5"),
        (lambda x: explain(lambda x: (x, x), x), ModelError, r"model returned a tuple of 2"),
        (lambda x: explain(mlp(3), x), ModelError, r"model failed on a batch of shape"),
    ],
)
def test_what_cannot_be_explained_is_refused_in_one_sentence(call, kind, sentence):
    with pytest.raises(kind, match=sentence) as error:
        call(points(24, 2))
    assert "\n" not in str(error.value)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_on_a_gpu():
    found = explain(BatchNormMLP(2).cuda(), points(24, 2, torch.float32).cuda())
    assert [m.name for m in found.modules] == ["2"]
    assert found.isolated.largest < 1e-3
