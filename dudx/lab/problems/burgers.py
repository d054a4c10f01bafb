"""The viscous Burgers equation: a sine wave steepens into a shock at x = 0."""

from __future__ import annotations

import math

import torch
from torch import Generator

from dudx.lab.problems.base import Condition, Points, Problem
from dudx.lab.problems.geometry import Interval
from dudx.lab.problems.references import reference
from dudx.residual import Residual

INPUTS = ("x", "t")
DOMAIN = Interval(-1.0, 1.0) * Interval(0.0, 1.0)
NU = 0.01 / math.pi


def initial(n: int, generator: Generator, device: torch.device, dtype: torch.dtype) -> Points:
    """Points at t = 0 with u = -sin πx."""
    points = DOMAIN.sample_initial(n, generator, device, dtype)
    return points, {"g": -torch.sin(math.pi * points[:, :1])}


def boundary(n: int, generator: Generator, device: torch.device, dtype: torch.dtype) -> Points:
    """Points at x = ±1, where u = 0."""
    points = DOMAIN.sample_boundary(n, generator, device, dtype).points
    return points, {"g": torch.zeros_like(points[:, :1])}


def burgers() -> Problem:
    """The problem, ready to be trained on."""
    value = Residual(lambda u, g: u - g, INPUTS, data=("g",))
    return Problem(
        name="burgers",
        title="Viscous Burgers 1D",
        label="Burgers 1D",
        inputs=INPUTS,
        domain=DOMAIN,
        residual=Residual(lambda u: u.t + u * u.x - NU * u.xx, INPUTS),
        conditions=[
            Condition("initial", "initial", value, initial),
            Condition("boundary", "boundary", value, boundary),
        ],
        solution=lambda: reference("burgers"),
    )


PROBLEM = burgers
