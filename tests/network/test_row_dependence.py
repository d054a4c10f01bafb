"""Networks that count or number their rows, and those that draw other numbers than torch's."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from helpers import points
from torch import nn

import dudx
from dudx import D
from dudx.network.row_dependence import rows_are_counted

TABLE = torch.linspace(1, 2, 2048, dtype=torch.float64).unsqueeze(1)


def _numbers(x):
    return torch.arange(len(x), dtype=x.dtype).unsqueeze(1)


def _with_capacity(x):
    """An expert that takes no more than ten rows."""
    return torch.where(_numbers(x) < 10, torch.sin(x[:, :1]), x[:, :1])


COUNTING = {
    "the number of rows": lambda x: torch.sin(x[:, :1]) * len(x),
    "the number of a row": lambda x: torch.sin(x[:, :1]) * (1 + _numbers(x)),
    "a share of the batch": lambda x: torch.sin(x[:, :1]) + _numbers(x) / len(x) * x[:, :1],
    "a table": lambda x: torch.sin(x[:, :1]) * TABLE[: len(x)],
    "a capacity": _with_capacity,
    "whether a row's number is odd": lambda x: torch.sin(x[:, :1]) * (1 + _numbers(x) % 2),
    "more rows than there are points": lambda x: torch.sin(x[:, :1]) * (2 if len(x) > 24 else 1),
    "as many rows as there are points": lambda x: torch.sin(x[:, :1]) * (2 if len(x) == 24 else 1),
    "the last row": lambda x: torch.sin(x[:, :1]) * (1 + (_numbers(x) == len(x) - 1)),
    "slices of ten rows": lambda x: torch.cat([k * part for k, part in enumerate(torch.sin(x[:, :1]).split(10), 1)]),
}
FINE = {
    "a formula": lambda x: torch.sin(x[:, :1]) * x[:, 1:],
    "a layer": nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1)).double(),
    "dropout": nn.Sequential(nn.Linear(2, 8), nn.Dropout(0.5), nn.Linear(8, 1)).double(),
    "rows in turn": lambda x: torch.stack([torch.sin(row[:1]) for row in x]),
    "a root that is undefined in places": lambda x: (x[:, :1] - 0.5).sqrt(),
    "large values": lambda x: 1e6 + x[:, :1],
    "one size only": lambda x: torch.sin(x.view(24, 2)[:, :1]),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("own", "passed"), [(24, 72), (24, 8), (24, 1000), (200, 24)])
def test_counting_is_noticed_and_nothing_else(own, passed, dtype):
    x = points(own, 2).to(dtype)
    for name, network in COUNTING.items():
        alike = passed < own and ("more" in name or "ten" in name)
        assert alike or rows_are_counted(network, x, own, passed), name
    for name, network in FINE.items():
        if not isinstance(network, nn.Module) or dtype == torch.float64:
            assert not rows_are_counted(network, x, own, passed), name


ENLARGING = {
    "FD": lambda network, x: dudx.evaluate(network, x, D(0), dudx.FD(1e-3)),
    "EFD": lambda network, x: dudx.evaluate(network, x, D(0), dudx.EFD({1: 1e-3})),
    "chunks": lambda network, x: dudx.backward(
        lambda part: dudx.evaluate(network, part, D(0), dudx.AD()).mean() + 0 * torch.zeros(1, requires_grad=True),
        x,
        chunk=8,
    ),
    "integral": lambda network, x: dudx.Residual(lambda u: u.x - u.integral({"y": (0, 1)}), ("x", "y"))(
        network, x, dudx.AD()
    ),
}


@pytest.mark.parametrize("way", ENLARGING)
@pytest.mark.parametrize("name", COUNTING)
def test_other_batches_than_that_of_the_points_are_refused_with_the_remedy(name, way):
    if way == "chunks" and "more" in name:  # than any slice has
        return
    with pytest.raises(dudx.errors.UnsupportedError, match=r"how many rows .* dudx.AD\(\)"):
        ENLARGING[way](COUNTING[name], points(24, 2))


@pytest.mark.parametrize("name", COUNTING)
def test_automatic_differentiation_of_the_whole_batch_is_right(name):
    x = points(24, 2).requires_grad_()
    (true,) = torch.autograd.grad(COUNTING[name](x).sum(), x)
    for engine in (dudx.AD(), dudx.Taylor()):
        torch.testing.assert_close(dudx.evaluate(COUNTING[name], x, D(0), engine).detach(), true[:, :1])


GENERATOR = np.random.default_rng(0)
NOISY = {
    "numpy.random": lambda x: torch.sin(x[:, :1]) * np.random.rand(),
    "a generator of numpy": lambda x: torch.sin(x[:, :1]) * GENERATOR.random(),
    "random": lambda x: torch.sin(x[:, :1]) * random.random(),
    "numbers by row": lambda x: x[:, :1] + torch.from_numpy(np.random.rand(len(x), 1)),
}


@pytest.mark.parametrize("engine", [dudx.FD(1e-3), dudx.EFD({1: 1e-3}), dudx.SFD((1e-4, 1e-3))], ids=str)
@pytest.mark.parametrize("name", NOISY)
def test_noise_that_is_not_torchs_is_refused_by_differences(name, engine):
    with pytest.raises(dudx.errors.UnsupportedError, match=r"numpy.random.*dudx.AD\(\)"):
        dudx.evaluate(NOISY[name], points(24, 2), D(0), engine)
