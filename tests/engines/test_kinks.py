"""A second derivative of a network with kinks is warned of once, by the layer that has them."""

from __future__ import annotations

import warnings

import pytest
import torch.nn.functional as F
from helpers import points
from torch import Tensor, nn
from traps import ENGINES, layers

import dudx
from dudx import D, Laplacian


class Straight(nn.Module):
    """Kinks in its own code, and no layer that has them."""

    def __init__(self) -> None:
        super().__init__()
        self.a, _, self.c = layers()

    def forward(self, x: Tensor) -> Tensor:
        return self.c(F.relu(self.a((x - 0.5) / 2)))


@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
@pytest.mark.parametrize(
    ("make", "where"),
    [
        (lambda: nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1)).double(), r"layer '1' \(ReLU\)"),
        (lambda: nn.Sequential(nn.Linear(2, 8), nn.PReLU(), nn.Linear(8, 1)).double(), r"layer '1' \(PReLU\)"),
        (Straight, "relu in its own code"),
    ],
)
def test_a_network_without_second_derivatives_is_named_once(make, where, engine):
    model, x = make(), points(6, 2)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", dudx.errors.KinkWarning)
            dudx.evaluate(model, x, D(0), engine)  # a first derivative it has
        with pytest.warns(dudx.errors.KinkWarning, match=where):
            dudx.evaluate(model, x, Laplacian(), engine)
    except dudx.errors.UnsupportedError:
        return
    with warnings.catch_warnings():
        warnings.simplefilter("error", dudx.errors.KinkWarning)
        for _ in range(4):
            dudx.evaluate(model, x, Laplacian(), engine)
