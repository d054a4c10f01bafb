"""Networks that draw random numbers: all rows of a point see the same ones, or there is a sentence."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers import points
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from traps import ENGINES, layers

import dudx
from dudx import D, Laplacian


class Noisy(nn.Module):
    """Adds noise to its features."""

    def forward(self, x: Tensor) -> Tensor:
        return x * (1 + torch.rand_like(x))


RANDOM = {
    "dropout": lambda: nn.Dropout(0.4),
    "alpha dropout": lambda: nn.AlphaDropout(0.4),
    "noise": Noisy,
}


@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
@pytest.mark.parametrize("layer", RANDOM.values(), ids=RANDOM)
def test_all_rows_of_a_point_see_the_same_random_numbers(layer, engine):
    """Value and second derivative of a network with one input and output come from one draw."""
    a, b, c = layers()
    model = nn.Sequential(a, nn.Tanh(), layer(), b, nn.Tanh(), c)
    x = points(6, 2)
    try:
        found = dudx.evaluate(model, x, [D(0), Laplacian()], engine)
    except dudx.errors.UnsupportedError:
        if engine.approximate:
            raise
        return
    # No draw of these networks has larger derivatives; with a mask for each row they are a thousand times that.
    assert max(float(value.detach().abs().max()) for value in found) < 20


class Checkpointed(nn.Module):
    def __init__(self, *layers: nn.Module):
        super().__init__()
        self.inner = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        return checkpoint(self.inner, x, use_reentrant=False)


@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
def test_random_numbers_that_the_backward_pass_draws_again(engine):
    """Exact engines find what they find without the checkpoint; others say so before the backward pass fails."""
    x, gradients = points(6, 2), []
    for kind in (Checkpointed, nn.Sequential):
        a, b, c = layers()
        torch.manual_seed(1)
        try:
            found = dudx.evaluate(nn.Sequential(kind(a, nn.Tanh(), nn.Dropout(0.4)), b, c), x, Laplacian(), engine)
        except dudx.errors.UnsupportedError as refusal:
            if kind is not Checkpointed or (engine.approximate and "inside of torch.utils.ch" not in str(refusal)):
                raise
            return
        gradients.append([found.detach(), *torch.autograd.grad(found.square().sum(), [a.weight, b.weight])])
    torch.testing.assert_close(*gradients)


def test_a_random_network_is_neither_calibrated_nor_recommended_for_differences():
    a, _, c = layers()
    model = nn.Sequential(a, nn.Tanh(), nn.Dropout(0.4), c)
    x = points(16, 2)
    with pytest.raises(dudx.errors.CalibrationError, match=r"model\.eval\(\)"):
        dudx.FD().calibrated(model, x, [Laplacian()])
    offered = {candidate.name: candidate for candidate in dudx.recommend(model, x, [Laplacian()], repeats=1)}
    assert np.isnan(offered["FD"].seconds)
    assert "random numbers" in offered["FD"].note
    assert offered["AD"].seconds > 0
