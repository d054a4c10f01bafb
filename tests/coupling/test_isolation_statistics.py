"""Running statistics, dropout and precision in isolated networks: as in a plain forward pass."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from helpers import rms, unchanged
from isolation_networks import BOTH, BatchNorm, Positions, made
from torch import Tensor, nn

from dudx import AD, FD, Laplacian, Taylor, evaluate, isolate


class Functional(nn.Module):
    """Batch norm by the function, with buffers of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(2))
        self.register_buffer("variance", torch.ones(2))

    def forward(self, x: Tensor) -> Tensor:
        return F.batch_norm(x, self.mean, self.variance, training=True)[:, :1]


STATISTICS = {
    "features": lambda: BatchNorm(2),
    "cumulative average": lambda: BatchNorm(2, momentum=None),
    "no tracking": lambda: BatchNorm(2, track_running_stats=False),
    "sequences": lambda: Positions(2, 1),
    "pictures": lambda: Positions(2, 2),
    "function": Functional,
    "two layers": lambda: nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 8), nn.BatchNorm1d(8), nn.Linear(8, 1)),
}


@BOTH
@pytest.mark.parametrize("engine", [AD(), Taylor(), FD(1e-2)], ids=["AD", "Taylor", "FD"])
@pytest.mark.parametrize("name", STATISTICS)
def test_running_statistics_are_updated_once_an_evaluation_as_in_a_plain_forward_pass(name, engine, exact):
    torch.manual_seed(0)
    model, x = STATISTICS[name]().double(), torch.rand(24, 2, dtype=torch.float64)
    plain = copy.deepcopy(model)
    for batch in (x, 2 * x + 1):
        with unchanged(model):
            isolated = isolate(model, batch, exact=exact)
        evaluate(isolated, batch, [Laplacian()], engine)
        plain(batch)
        for ours, expected in zip(model.buffers(), plain.buffers(), strict=True):
            assert torch.allclose(ours, expected, rtol=1e-12, atol=0)


@BOTH
@pytest.mark.parametrize("name", STATISTICS)
def test_statistics_stay_when_asked_to(name, exact):
    model, x = STATISTICS[name]().double(), torch.rand(24, 2, dtype=torch.float64)
    for network in (model, lambda x: model(x)):  # a function hides its modules no better
        with unchanged(model):
            evaluate(isolate(network, x, update_statistics=False, exact=exact), x, [Laplacian()], AD())


@BOTH
def test_in_evaluation_mode_batch_norm_is_left_alone(exact):
    model, x = made("batch norm")
    model(x)
    model.eval()
    with unchanged(model):
        assert torch.allclose(isolate(model, x, exact=exact)(x), model(x))


@BOTH
def test_a_sample_drops_the_same_features_wherever_it_is_moved(exact):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Dropout(0.5), nn.Linear(16, 1)).double()
    x = torch.rand(24, 2, dtype=torch.float64)
    isolated, rows = isolate(model, x, exact=exact), []
    for queries in (x, torch.cat([x, x, x])):
        torch.manual_seed(5)
        rows += isolated(queries).split(24)
    torch.manual_seed(5)
    plain = model(x)
    assert rms(plain.detach()) > 0.1
    assert all(torch.allclose(block, plain) for block in rows)


def test_half_precision_computes_statistics_in_single_precision():
    """A sample moves the mean of 1024 by less than bfloat16 can tell."""
    torch.manual_seed(0)
    model, x = nn.BatchNorm1d(1).bfloat16(), torch.randn(1024, 1).bfloat16()
    wide = isolate(copy.deepcopy(model).float(), x.float())
    ours = isolate(model, x)(x + 3)
    assert ours.dtype == torch.bfloat16
    # Rounding of outputs up to 6 to bfloat16.
    assert (ours.float() - wide((x + 3).float())).abs().max() < 6 * torch.finfo(torch.bfloat16).eps
