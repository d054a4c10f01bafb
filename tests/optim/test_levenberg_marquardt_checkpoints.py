"""Going on from a checkpoint of Levenberg-Marquardt is going on from where it was, bit for bit."""

from __future__ import annotations

import io

import pytest
import torch
from helpers import mlp
from poisson_square import poisson_terms, square

import dudx
from dudx.optim import LevenbergMarquardt


@pytest.mark.parametrize("memory", [0.0, 0.6])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_going_on_from_a_checkpoint_is_bit_identical(memory, dtype):
    def made():
        model = mlp(width=8).to(dtype)
        return model, LevenbergMarquardt(model.parameters(), memory=memory)

    def run(model, optimizer, steps):
        generator = torch.Generator().manual_seed(0)
        engine = dudx.SFD((1e-2, 2e-2), generator=generator)
        losses = []
        for step in steps:
            generator.manual_seed(step)
            inside, edge = square(60, 30, seed=step, dtype=dtype)
            losses.append(optimizer.step(poisson_terms(model, engine, inside, edge, (None, None))))
        return losses

    model, optimizer = made()
    losses = run(model, optimizer, range(12))
    again, other = made()
    assert run(again, other, range(6)) == losses[:6]
    file = io.BytesIO()
    torch.save({"model": again.state_dict(), "optimizer": other.state_dict()}, file)
    file.seek(0)
    kept = torch.load(file, weights_only=True)
    resumed, third = made()
    resumed.load_state_dict(kept["model"])
    third.load_state_dict(kept["optimizer"])
    assert run(resumed, third, range(6, 12)) == losses[6:]
    for a, b in zip(model.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(a, b)
