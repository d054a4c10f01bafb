"""The errors that `dudx.explain` measures: those of the batched idiom against each sample's own derivative."""

from __future__ import annotations

import math
import re

import pytest
import torch
from architectures import Captured, layers
from helpers import Counted, mlp, points
from torch import Tensor, nn

from dudx import AD, D, Laplacian, PerSampleAD, evaluate, explain
from dudx.lab.run.networks import BatchNormMLP


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
    assert found.method == "each alone, in one pass"
    assert found.isolated.largest < 1e-10
    assert found.points == 40


def test_known_errors():
    """For x minus the mean the idiom returns zero; for a neighbour's value, a derivative that does not exist."""
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
    assert (found.method, found.isolated, found.change) == (None, None, 0)


def test_several_mixing_layers_are_isolated_exactly_and_the_approximation_is_measured():
    model = nn.Sequential(BatchNormMLP(2, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 1)).double()
    found = explain(model, points(24, 2))
    assert found.method == "each alone, in a batch of its own"
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
    assert found.method == "each alone, in a batch of its own"
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


class Rounded(torch.autograd.Function):
    """Rounds, and passes gradients on: the true derivative is zero."""

    @staticmethod
    def forward(ctx, x):
        return torch.floor(3 * x)

    @staticmethod
    def backward(ctx, gradient):
        return 3 * gradient


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "network",
    [
        lambda x: Rounded.apply(x[:, :1]),
        lambda x: 1e-3 * Rounded.apply(x),
        lambda x: (x - x.mean(0)).mean(0, keepdim=True).expand(len(x), 2) + x.detach() * 0,
    ],
    ids=["rounded", "small", "zero"],
)
def test_an_error_beside_zero_is_a_sentence(network, dtype):
    report = str(explain(network, torch.rand(64, 2, dtype=dtype, generator=torch.Generator().manual_seed(0))))
    assert not re.search(r"\de\+\d+ %|\d{7,} %", report)


def test_the_report_of_a_rounding_network_says_that_the_derivative_is_zero():
    report = str(explain(lambda x: Rounded.apply(x[:, :1]), torch.rand(64, 2, dtype=torch.float64)))
    assert "the true derivative is zero here, and the computed one is not" in report
