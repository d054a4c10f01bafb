"""Influence that is small beside the output, or reaches no further than the nearest neighbours."""

from __future__ import annotations

import pytest
import torch
from helpers import points
from torch import nn

import dudx
from dudx import D
from dudx.network.probe_rows import representative_points


class Scaled(nn.Module):
    """A layer whose output has an offset, and mixes the batch or does not."""

    def __init__(self, offset, mixes):
        super().__init__()
        self.layer, self.offset, self.mixes = nn.Linear(2, 1), offset, mixes

    def forward(self, x):
        h = torch.tanh(self.layer(x))
        return self.offset + h * (h.mean(0) if self.mixes else 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("offset", [0.0, 1e2, 1e4, 1e6])
@pytest.mark.parametrize("mixes", [True, False])
def test_an_offset_hides_nothing(offset, mixes, dtype):
    x = points(40, 2).to(dtype)
    assert dudx.coupled(Scaled(offset, mixes).to(dtype), x) is mixes
    assert dudx.coupled(lambda x: offset + x[:, :1] * (x[:, :1].mean() if mixes else 1), x) is mixes
    held = Scaled(offset, mixes).to(dtype)
    # A network inside of a function cannot be copied to double precision.
    assert dudx.coupled(lambda x: held(x), x) is mixes


def test_who_differentiates_such_a_network_is_refused():
    with pytest.raises(dudx.CoupledModelError):
        dudx.evaluate(lambda x: 1e6 + x[:, :1] * x[:, :1].mean(), torch.rand(40, 2), D(0), dudx.AD())


def neighbours(radius):
    """A density as of particle methods: each point sees those within a radius."""

    def network(x):
        weights = torch.relu(1 - torch.cdist(x, x) / radius) ** 2
        return weights @ torch.sin(3 * x[:, :1])

    return network


BATCHES = {
    "plane": lambda: points(200, 2),
    "many": lambda: points(2000, 2),
    "space": lambda: points(200, 3),
    "at one time": lambda: torch.cat([points(200, 1), torch.zeros(200, 1, dtype=torch.float64)], dim=1),
    "grid": lambda: torch.cartesian_prod(*[torch.linspace(0, 1, 15, dtype=torch.float64)] * 2),
}


def nearest(x):
    distance = torch.cdist(x, x).fill_diagonal_(torch.inf)
    return float(distance[distance > 0].amin())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("batch", BATCHES)
def test_neighbours_within_a_small_radius_are_seen(batch, dtype):
    x = BATCHES[batch]().to(dtype)
    radius = 1.5 * nearest(x)
    assert dudx.coupled(neighbours(radius), x) is True
    assert dudx.coupled(lambda x: torch.sin(x[:, :1]), x) is False
    with pytest.raises(dudx.CoupledModelError):
        dudx.evaluate(neighbours(radius), x, D(0), dudx.AD())


def test_explain_sees_them_too():
    x = points(200, 2)
    found = dudx.explain(neighbours(4 * nearest(x)), x)
    assert found.coupled
    assert found.change > 0
    assert found.gradient is not None
    assert found.gradient.largest > 1e-3


@pytest.mark.parametrize("count", [4, 8, 13, 16, 100])
def test_the_points_of_a_probe_are_different_ones(count):
    for batch in BATCHES.values():
        x = batch()
        chosen = representative_points(x, count)
        assert len(chosen) == len(set(chosen.tolist())) == min(count, len(x))
