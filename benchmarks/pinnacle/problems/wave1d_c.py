"""A string that swings in two of its modes."""

import math

import torch

from dudx.lab import Dirichlet, Initial, Interval, Problem

TITLE = "Wave1d-C"
PI = math.pi

problem = Problem(
    lambda u: u.tt - 4 * u.xx,
    inputs=("x", "t"),
    domain=Interval(0, 1) * Interval(0, 1),
    conditions=[
        Initial(u=lambda x: torch.sin(PI * x) + torch.sin(4 * PI * x) / 2, u_t=0.0),
        Dirichlet(u=0.0),
    ],
    title=TITLE,
)
