"""Heat with a source that depends on the temperature and swings for a long time."""

import math

import torch

from dudx.lab import Box, Dirichlet, Initial, Interval, Problem

TITLE = "Heat2d-LT"
PI = math.pi


def source(u, x, y, t):
    place = torch.sin(4 * PI * x) * torch.sin(2 * PI * y)
    return 5 * torch.sin(u * u) * (1 + 2 * torch.sin(PI * t / 4)) * place


problem = Problem(
    lambda u, x, y, t: u.t - 0.001 * (u.xx + u.yy) - source(u, x, y, t),
    inputs=("x", "y", "t"),
    domain=Box((0, 0), (1, 1)) * Interval(0, 100),
    conditions=[Initial(u=lambda x, y: torch.sin(4 * PI * x) * torch.sin(3 * PI * y)), Dirichlet(u=0.0)],
    title=TITLE,
)
