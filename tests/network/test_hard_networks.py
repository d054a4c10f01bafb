"""Networks that are hard to look at: they differentiate in their forward, or fail away from their own points."""

import pytest
import torch
from helpers import mlp, points
from torch import nn

from dudx import (
    AD,
    FD,
    CoupledModelError,
    D,
    Laplacian,
    PerSampleAD,
    Taylor,
    coupled,
    evaluate,
    explain,
    find_eps,
    isolate,
    running_statistics,
)
from dudx.errors import ModelError


class Force(nn.Module):
    """The gradient of a potential, computed in the forward pass; scaled by the batch if that is asked for."""

    def __init__(self, *, mixing=False):
        super().__init__()
        self.potential, self.norm = mlp(), nn.BatchNorm1d(2).double() if mixing else nn.Identity()

    def forward(self, x):
        x = x if x.requires_grad else x.requires_grad_()
        energy = self.potential(x)
        (slope,) = torch.autograd.grad(energy.sum(), x, create_graph=True)
        return self.norm(slope)


@pytest.mark.parametrize("context", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_a_network_that_differentiates_in_its_forward_is_probed(context):
    x, force, mixing = points(8, 2), Force(), Force(mixing=True)
    with context():
        assert not coupled(force, x)
        assert coupled(mixing, x)
        value = evaluate(force, x, D(0), AD())
        with pytest.raises(CoupledModelError):
            evaluate(mixing, x, D(0), AD())
    torch.testing.assert_close(value[:, :1].detach(), evaluate(force.potential, x, D(0, 0), AD()).detach())
    assert not x.requires_grad


@pytest.mark.filterwarnings("error")
def test_a_network_that_differentiates_in_its_forward_is_explained_and_calibrated():
    x, force, mixing = points(16, 2), Force(), Force(mixing=True)
    assert "samples are independent" in str(explain(force, x))
    assert not any("Samples mix" in note for note in explain(force, x).notes)
    assert "influence each other" in str(explain(mixing, x))
    assert [module.name for module in explain(mixing, x).modules] == ["norm"]
    by_potential = find_eps(lambda x: evaluate(force.potential, x, [D(0)], AD())[0], x, 1)
    assert find_eps(force, x, 1).rmse.min() < 10 * by_potential.rmse.min()


def test_a_network_that_differentiates_in_its_forward_has_the_sound_derivatives_too():
    x, model = points(8, 2), Force(mixing=True)
    expected = evaluate(model, x, Laplacian(), PerSampleAD(method="loop"))
    for options in ({}, {"exact": True}):
        isolated = evaluate(isolate(model, x, **options), x, Laplacian(), AD())
        torch.testing.assert_close(isolated, expected, rtol=1e-10, atol=1e-10)
    with running_statistics(model, x) as pointwise:
        slope = evaluate(pointwise, x, D(0), AD())
        assert not coupled(pointwise, x)
        again = evaluate(pointwise, x, D(0), FD(1e-4))
    torch.testing.assert_close(again, slope, rtol=1e-5, atol=1e-5)
    assert not model.norm.running_mean.requires_grad


@pytest.mark.filterwarnings("ignore::dudx.errors.SlowRuleWarning")
def test_taylor_differentiates_such_a_network_as_a_whole():
    x, force = points(4, 2), Force()
    for ours, exact in zip(*(evaluate(force, x, [D(0), D(0, 1)], e) for e in (Taylor(), AD())), strict=True):
        torch.testing.assert_close(ours, exact, rtol=1e-10, atol=1e-10)


def in_the_unit_square(x):
    assert bool((x >= 0).all() and (x <= 1).all())
    return x.square()


def by_table(x):
    return x * torch.arange(2.0, dtype=x.dtype)[x.detach().long()]


def by_root(x):
    if bool((x > 1).any()):
        raise ValueError
    return x.sqrt()


@pytest.mark.parametrize("model", [in_the_unit_square, by_table, by_root])
def test_a_network_that_is_defined_on_its_domain_only_is_refused_with_the_remedy(model):
    x = points(8, 2).abs()
    for probed in (lambda: coupled(model, x), lambda: evaluate(model, x, D(0), AD())):
        with pytest.raises(ModelError, match=r"moved away \(.+\).*AD\(coupled='ignore'\)"):
            probed()
    evaluate(model, x, D(0), AD(coupled="ignore"))


def test_a_network_that_fails_by_itself_is_not_told_to_ignore_coupling():
    def wrong(x):
        raise IndexError("out of order")

    with pytest.raises(IndexError, match="out of order"):
        coupled(wrong, points(8, 2))
    with pytest.raises(ModelError, match="failed on a batch"):
        coupled(nn.Linear(3, 1).double(), points(8, 2))


def test_a_network_that_insists_on_the_size_of_its_batch_is_probed_with_that_size():
    def model(x):
        assert len(x) == 40
        return x * x.mean()

    assert coupled(model, points(40, 2))
