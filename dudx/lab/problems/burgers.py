"""The viscous Burgers equation: a sine wave steepens into a shock at x = 0."""

from __future__ import annotations

import math

import torch

from dudx.lab.problems.conditions import Dirichlet, Initial
from dudx.lab.problems.geometry import Interval
from dudx.lab.problems.problem import Problem
from dudx.lab.problems.references import reference

NU = 0.01 / math.pi


def burgers() -> Problem:
    """Make the problem."""
    return Problem(
        lambda u: u.t + u * u.x - NU * u.xx,
        inputs=("x", "t"),
        domain=Interval(-1.0, 1.0) * Interval(0.0, 1.0),
        conditions=[Initial(u=lambda x: -torch.sin(math.pi * x)), Dirichlet(u=0.0)],
        name="burgers",
        title="Viscous Burgers 1D",
        label="Burgers 1D",
        solution=lambda: reference("burgers"),
    )


PROBLEM = burgers
