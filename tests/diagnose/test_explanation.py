"""`dudx.explain`: what it advises, that it leaves no trace, and what it refuses."""

from __future__ import annotations

import copy
import dataclasses
import pickle

import pytest
import torch
from architectures import made
from helpers import mlp, points, unchanged
from torch import Tensor, nn

from dudx import explain
from dudx.diagnose.measured_errors import RelativeError
from dudx.errors import InputError, ModelError
from dudx.lab.run.networks import AttentionMLP, BatchNormMLP

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
    assert found.method == "each alone, in a batch of its own"
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
