"""Each sample's own derivative in a coupled network, against the plain loop over samples."""

import copy

import pytest
import torch
from coupled_networks import COUPLED, UNCOUPLED, made
from helpers import PER_SAMPLE, every_engine, parameter_gradients, points, unchanged
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from dudx import AD, Along, D, Laplacian, PerSampleAD, evaluate


class PlainBatchNorm(nn.Module):
    """Batch norm by its definition; the fused one of torch has a wrong derivative of third order."""

    def __init__(self, fused):
        super().__init__()
        self.weight, self.bias, self.eps = fused.weight, fused.bias, fused.eps

    def forward(self, x):
        variance = (x - x.mean(0)).square().mean(0)
        return (x - x.mean(0)) / torch.sqrt(variance + self.eps) * self.weight + self.bias


def plain(model):
    """A copy that can be differentiated three times, and whose parameters come in the same order."""
    twin = copy.deepcopy(model)
    for name, module in twin.named_children():
        if isinstance(module, nn.BatchNorm1d):
            setattr(twin, name, PlainBatchNorm(module))
    return twin


def by_hand(model, x, what):
    """The plain loop: the i-th output differentiated with respect to the i-th point, the others held still."""
    rows = []
    for i in range(len(x)):
        own = x[i].clone().requires_grad_()
        batch = x.clone()
        batch[i] = own
        with sdpa_kernel(SDPBackend.MATH):  # the fused kernel has no second derivative
            u = model(batch)[i, 0]
        (gradient,) = torch.autograd.grad(u, own, create_graph=True)
        if what == "laplacian":
            second = [torch.autograd.grad(gradient[k], own, create_graph=True)[0][k] for k in range(2)]
            rows.append(second[0] + second[1])
        else:
            rows.append(gradient[0])
    return torch.stack(rows).unsqueeze(1)


@pytest.mark.parametrize("what", ["gradient", "laplacian"])
@pytest.mark.parametrize("engine", PER_SAMPLE.values(), ids=PER_SAMPLE)
@pytest.mark.parametrize("name", COUPLED)
def test_per_sample_engines_are_right_for_coupled_networks(name, engine, what):
    model, x = made(COUPLED, name), points(6, 2)
    twin = plain(model)
    expected = by_hand(twin, x, what)
    with unchanged(model):
        value = evaluate(model, x, Laplacian() if what == "laplacian" else D(0), engine)
        # Batch norm divides by small deviations, which magnifies rounding.
        torch.testing.assert_close(value, expected, rtol=1e-8, atol=1e-9)
        torch.testing.assert_close(
            parameter_gradients(value.square().mean(), model),
            parameter_gradients(expected.square().mean(), twin),
            rtol=1e-7,
            atol=1e-9,
        )


@pytest.mark.parametrize("name", ["batch norm", "attention over the batch"])
def test_the_per_sample_derivative_is_not_the_derivative_of_the_sum(name):
    model, x = made(COUPLED, name), points(6, 2)
    own = evaluate(model, x, D(0), PerSampleAD())
    ignored = evaluate(model, x, D(0), AD(coupled="ignore"))
    assert (own - ignored).abs().max() > 1e-3 * own.abs().max()


@pytest.mark.parametrize("name", ["batch norm", "attention over the batch"])
def test_vectorised_and_looped_agree_on_everything_else(name):
    model, x = made(COUPLED, name), points(6, 2)
    operators = [D(), D(0, 1), D(1, 1, 1), Along(points(6, 2, seed=3), 2), D() - 0.3 * Laplacian()]
    vectorised = evaluate(model, x, operators, PerSampleAD(chunk=4))
    looped = evaluate(model, x, operators, PerSampleAD(method="loop"))
    torch.testing.assert_close(list(vectorised), list(looped), rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("engine", PER_SAMPLE.values(), ids=PER_SAMPLE)
def test_batch_norm_keeps_tracking_after_a_per_sample_evaluation(engine):
    model, x = made(COUPLED, "batch norm"), points(6, 2)
    evaluate(model, x, D(0), engine)
    assert model[1].track_running_stats
    assert model[1].num_batches_tracked == 0
    model(x)
    assert model[1].num_batches_tracked == 1


@pytest.mark.parametrize("name", every_engine(3e-2, 6))
def test_all_engines_agree_where_samples_are_independent(name):
    model, x = made(UNCOUPLED, "attention over features"), points(6, 2)
    expected = evaluate(model, x, Laplacian(), PerSampleAD(method="loop"))
    value = evaluate(model, x, Laplacian(), every_engine(3e-2, 6)[name])
    # At this step and accuracy differences of so smooth a network are exact to about 1e-8.
    torch.testing.assert_close(value, expected, rtol=1e-6, atol=1e-7)
