"""The search for a step: the optimum where theory puts it, the curve, memory, traces and refusals."""

import copy
import math
from functools import cache

import numpy as np
import pytest
import torch
from helpers import mlp, points, unchanged
from torch import nn

from dudx import AD, FD, D, PerSampleAD, find_eps, frozen, isolate
from dudx.errors import CalibrationError, CalibrationWarning

FP64, FP32, BF16 = torch.float64, torch.float32, torch.bfloat16


@cache
def network(dtype):
    return mlp(width=64, depth=4).to(dtype)


@cache
def calibration(dtype, order, reference="exact", count=1024):
    return find_eps(network(dtype), points(count, 2, dtype), order, reference=reference, candidates=32)


def true_error(step, exact):
    """The error at a step, read off the curve that was measured against exact derivatives."""
    return math.exp(np.interp(math.log(step), np.log(exact.steps), np.log(exact.rmse)))


# -- the optimum -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "order"), [(FP64, 1), (FP64, 2), (FP32, 1), (FP32, 2), (BF16, 1)], ids=lambda value: str(value)
)
def test_the_best_step_is_where_theory_puts_it(dtype, order):
    """Rounding ε/h^k meets truncation h² at ε^(1/(k+2)), up to a constant of the network of order one."""
    expected = torch.finfo(dtype).eps ** (1 / (order + 2))
    found = calibration(dtype, order)
    assert expected / 10 < found.step < expected * 10
    assert not found.at_edge


@pytest.mark.parametrize(
    ("dtype", "order", "reference"),
    [
        (FP64, 1, "differences"),
        (FP64, 2, "differences"),
        (FP32, 1, "differences"),
        (FP32, 2, "differences"),
        (BF16, 1, "differences"),
        (FP32, 1, "float64"),
        (FP32, 2, "float64"),
    ],
    ids=lambda value: str(value),
)
def test_references_without_automatic_differentiation_find_a_step_as_good(dtype, order, reference):
    exact, other = calibration(dtype, order, count=256), calibration(dtype, order, reference, count=256)
    assert true_error(other.step, exact) <= 2 * exact.rmse.min()


@pytest.mark.parametrize("order", [1, 2])
def test_steps_larger_than_the_features_are_not_taken_for_good(order):
    """Across many waves differences of neighbouring steps agree that the derivative is small, which it is not."""

    def waves(x):
        return torch.sin(30 * x)

    x = points(300, 1, FP32)
    exact = find_eps(waves, x, order, largest=1e3)
    estimated = find_eps(waves, x, order, largest=1e3, reference="differences")
    # Steps near a power of two round by luck less than any estimate could know; a step too large is off by thousands.
    assert true_error(estimated.step, exact) <= 20 * exact.rmse.min()


@pytest.mark.parametrize("order", [3, 4])
def test_higher_orders(order):
    model, x = mlp().to(FP32), points(100, 2, FP32)
    exact = find_eps(model, x, order)
    estimated = find_eps(model, x, order, reference="differences")
    expected = torch.finfo(FP32).eps ** (1 / (order + 2))
    assert expected / 10 < exact.step < expected * 10
    assert true_error(estimated.step, exact) <= 2 * exact.rmse.min()


@pytest.mark.parametrize("dtype", [BF16, torch.float16], ids=str)
def test_engines_in_half_precision_are_calibrated_by_a_copy_in_single_precision(dtype):
    model, x = network(dtype), points(200, 2, dtype)
    found = FD().calibrated(model, x, [D(0)], candidates=16).calibrations[1]
    exact = find_eps(model, x, 1, axes=[0], candidates=16)
    assert found.reference == "exact"
    np.testing.assert_array_equal(found.rmse, exact.rmse)
    # Neither a function nor a network whose samples are to be taken as they come has such a copy.
    assert "AD" in FD().calibrated(lambda x: torch.sin(x), x, [D(0)], candidates=8).calibrations[1].reference
    assert "ignore" in FD(coupled="ignore").calibrated(model, x, [D(0)], candidates=8).calibrations[1].reference


# -- the curve ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [1, 2])
def test_the_curve_falls_as_rounding_and_rises_as_truncation(order):
    found = calibration(FP64, order)
    assert found.order == order
    assert found.reference == "exact"
    assert found.steps.shape == found.rmse.shape == found.max_error.shape == (32,)
    assert found.step == found.steps[found.rmse.argmin()]
    ratios = found.steps[1:] / found.steps[:-1]
    assert np.allclose(ratios, ratios[0])
    assert (found.max_error >= found.rmse).all()

    def slope(part):
        return np.polyfit(np.log(found.steps[part]), np.log(found.rmse[part]), 1)[0]

    # A factor of five from the minimum one of the two errors is alone; rounding is random, hence its tolerance.
    assert slope(found.steps < found.step / 5) == pytest.approx(-order, abs=0.25)
    assert slope((found.steps > found.step * 5) & (found.steps < 0.1)) == pytest.approx(2, abs=0.15)


def test_the_estimated_curve_lies_near_the_exact_one():
    exact, estimated = calibration(FP32, 1, count=256), calibration(FP32, 1, "differences", count=256)
    # For pure rounding or pure truncation the estimate is off only by its assumptions.
    assert np.abs(np.log(estimated.rmse / exact.rmse)).max() < math.log(3)


@pytest.mark.parametrize("accuracy", [2, 4, 6])
@pytest.mark.parametrize("order", [1, 2, 3, 4])
@pytest.mark.parametrize("dtype", [FP64, FP32], ids=str)
def test_the_default_range_holds_the_optimum(dtype, order, accuracy):
    """A minimum at the edge would be a CalibrationWarning, which fails the test."""
    found = find_eps(mlp().to(dtype), points(50, 2, dtype), order, accuracy=accuracy, candidates=20)
    assert not found.at_edge


def test_the_range_and_number_of_candidates_can_be_chosen():
    found = find_eps(mlp(), points(20, 2), 1, smallest=1e-7, largest=1e-2, candidates=11)
    np.testing.assert_allclose(found.steps, np.geomspace(1e-7, 1e-2, 11))


def test_higher_accuracy_allows_larger_steps_and_smaller_errors():
    second = find_eps(mlp(), points(50, 2), 1)
    fourth = find_eps(mlp(), points(50, 2), 1, accuracy=4)
    assert fourth.step > 3 * second.step
    assert fourth.rmse.min() < second.rmse.min() / 3


def test_errors_are_pooled_over_the_chosen_axes():
    def model(x):
        return torch.sin(x[:, :1]) + torch.sin(10 * x[:, 1:])

    x = points(200, 2)
    slow, fast, both = (find_eps(model, x, 1, axes=axes) for axes in ([0], [1], None))
    # Ten times the frequency has its third derivative, and with it the error, a thousand times as large.
    assert slow.step > 5 * fast.step
    np.testing.assert_allclose(both.rmse**2, (slow.rmse**2 + fast.rmse**2) / 2, rtol=1e-6)


def test_an_engine_can_be_the_reference():
    model, x = mlp(), points(30, 2)
    default, given = find_eps(model, x, 2), find_eps(model, x, 2, reference=PerSampleAD())
    np.testing.assert_allclose(given.rmse, default.rmse, rtol=1e-3)
    assert given.reference == repr(PerSampleAD())


def test_the_reference_counts_as_true():
    """Measured against differences of a step, that step has no error."""
    with pytest.warns(CalibrationWarning):
        found = find_eps(mlp(), points(30, 2), 1, smallest=1e-3, largest=1e-1, reference=FD(1e-1))
    assert found.step == pytest.approx(1e-1)
    assert found.rmse[-1] < 1e-12


# -- what cannot be searched -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("smallest", "largest", "end"), [(1e-2, 1e-1, 0), (1e-9, 1e-8, -1)], ids=["too large", "too small"]
)
def test_a_minimum_at_the_edge_of_the_range_is_reported(smallest, largest, end):
    with pytest.warns(CalibrationWarning, match=r"an end of the range searched; widen it with smallest= and largest="):
        found = find_eps(mlp(), points(50, 2), 1, smallest=smallest, largest=largest)
    assert found.at_edge
    assert found.step == found.steps[end]


@pytest.mark.parametrize("reference", ["exact", "differences"])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_curve_that_is_not_finite_is_refused(reference):
    with pytest.raises(CalibrationError, match=r"not finite at step .*smallest= and largest="):
        find_eps(lambda x: torch.exp(300 * x), points(20, 1), 1, largest=10.0, reference=reference)


def test_a_network_with_nan_is_refused():
    model = mlp()
    with torch.no_grad():
        model[0].weight[0, 0] = torch.nan
    for reference in ("exact", "differences"):
        with pytest.raises(CalibrationError, match="not finite"):
            find_eps(model, points(20, 2), 1, reference=reference)


# -- memory and traces -------------------------------------------------------------------------------------------


class Watched(nn.Module):
    """Notes the rows it gets, also as a copy, and counts its calls in a buffer."""

    def __init__(self, rows):
        super().__init__()
        self.network = mlp().to(FP32)
        self.register_buffer("calls", torch.zeros(1))
        self.record = rows.append

    def forward(self, x):
        self.record(len(x))
        self.calls += 1
        return self.network(x)

    def __deepcopy__(self, memo):
        twin = Watched.__new__(Watched)
        nn.Module.__init__(twin)
        twin.network, twin.record = copy.deepcopy(self.network, memo), self.record
        twin.register_buffer("calls", self.calls.clone())
        return twin


@pytest.mark.parametrize(("order", "accuracy"), [(1, 2), (2, 2), (3, 2), (2, 4)])
@pytest.mark.parametrize("reference", ["exact", "float64", "differences"])
def test_no_more_rows_than_allowed_pass_at_once(reference, order, accuracy):
    rows = []
    model, x = Watched(rows), points(40, 2, FP32)
    with unchanged(model):
        find_eps(model, x, order, reference=reference, accuracy=accuracy, max_rows=60, candidates=20)
    assert 0 < max(rows) <= 60


@pytest.mark.parametrize("reference", ["exact", "differences"])
def test_the_result_does_not_depend_on_the_rows_at_once(reference):
    model, x = mlp(), points(100, 2)
    whole = find_eps(model, x, 1, reference=reference)
    sliced = find_eps(model, x, 1, reference=reference, max_rows=64)
    # Matrix products of another height round differently, which shows where rounding is the error ...
    np.testing.assert_allclose(sliced.rmse, whole.rmse, rtol=0.3)
    assert sliced.step == pytest.approx(whole.step, rel=0.5)
    # ... and not where truncation is.
    coarse = whole.steps > 1e-3
    np.testing.assert_allclose(sliced.rmse[coarse], whole.rmse[coarse], rtol=1e-4)
    np.testing.assert_allclose(sliced.max_error[coarse], whole.max_error[coarse], rtol=1e-4)


@pytest.mark.parametrize("reference", ["exact", "float64", "differences"])
def test_calibration_leaves_no_trace(reference):
    model, x = Watched([]), points(20, 2, FP32).requires_grad_()
    parameters = copy.deepcopy(dict(model.named_parameters()))
    with unchanged(model):
        find_eps(model, x, 1, reference=reference)
    assert x.grad is None
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, parameters[name])
        assert parameter.requires_grad
    assert model.network[0].weight.dtype == FP32
    assert torch.is_grad_enabled()


def test_points_are_not_differentiated_through():
    found = find_eps(mlp(), points(20, 2).requires_grad_(), 1)
    assert isinstance(found.rmse, np.ndarray)


# -- isolated networks -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reference", ["exact", "differences", AD()], ids=str)
@pytest.mark.parametrize("wrap", [isolate, frozen])
def test_an_isolated_network_keeps_its_samples_together(wrap, reference):
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 1)).double(), points(64, 2)
    isolated = wrap(model, x, update_statistics=False)
    sliced = find_eps(isolated, x, 2, reference=reference, candidates=8, max_rows=100)  # the stencil takes 320
    np.testing.assert_allclose(sliced.rmse, find_eps(isolated, x, 2, reference=reference, candidates=8).rmse, rtol=1e-6)


def test_an_isolated_network_of_any_batch_can_be_calibrated():
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Tanh(), nn.Linear(2, 1)).double()
    x = points(2**14, 2)
    assert FD().calibrated(isolate(model, x, update_statistics=False), x, [D(0, 0)], candidates=3).step
