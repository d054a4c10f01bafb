"""Laplace's equation on a square with four round holes: u = 1 on the square's edge, u = 0 on the circles."""

from __future__ import annotations

import itertools

import torch
from torch import Generator

from dudx.lab.problems.base import Condition, Points, Problem
from dudx.lab.problems.geometry import Box, Circle, Cutout, Disc
from dudx.lab.problems.references import reference
from dudx.residual import Residual

INPUTS = ("x", "y")
HOLES = [Disc(center, 0.1) for center in itertools.product((-0.3, 0.3), repeat=2)]
DOMAIN = Cutout(Box((-0.5, -0.5), (0.5, 0.5)), *HOLES)


def boundary(n: int, generator: Generator, device: torch.device, dtype: torch.dtype) -> Points:
    """Points on the whole boundary with the value u has there."""
    points, _, piece = DOMAIN.sample_boundary(n, generator, device, dtype)
    values = torch.tensor([0.0 if isinstance(p.surface, Circle) else 1.0 for p in DOMAIN.pieces], device=device)
    return points, {"g": values.to(dtype)[piece].unsqueeze(1)}


def poisson() -> Problem:
    """The problem, ready to be trained on."""
    return Problem(
        name="poisson",
        title="Poisson 2D with holes",
        label="Poisson 2D",
        inputs=INPUTS,
        domain=DOMAIN,
        residual=Residual(lambda u: u.xx + u.yy, INPUTS),
        conditions=[Condition("boundary", "boundary", Residual(lambda u, g: u - g, INPUTS, data=("g",)), boundary)],
        solution=lambda: reference("poisson"),
        # As published: a hundred times the weight that boundaries have elsewhere.
        defaults={"weight_boundary": 1000.0},
    )


PROBLEM = poisson
