"""Heat that spreads 250 000 times faster along y than along x, from a state with ten waves along x."""

import math

import torch

from dudx.lab import Box, Dirichlet, Initial, Interval, Problem

TITLE = "Heat2d-MS"
PI = math.pi
SLOW, FAST = 1 / (500 * PI) ** 2, 1 / PI**2

problem = Problem(
    lambda u: u.t - SLOW * u.xx - FAST * u.yy,
    inputs=("x", "y", "t"),
    domain=Box((0, 0), (1, 1)) * Interval(0, 5),
    conditions=[Initial(u=lambda x, y: torch.sin(20 * PI * x) * torch.sin(PI * y)), Dirichlet(u=0.0)],
    title=TITLE,
)
