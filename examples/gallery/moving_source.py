"""Heat in an L-shaped plate with cold edges, from a source that moves around the corner."""

import math

import torch

from dudx.lab import Dirichlet, Initial, Interval, Polygon, Problem


def source(x, y, t):
    """Return the heat per area and time."""
    angle = math.pi * (1.4 * t - 0.2)
    from_x, from_y = x - 0.5 * torch.cos(angle), y - 0.5 * torch.sin(angle)
    return 10 * torch.exp(-(from_x**2 + from_y**2) / 0.08)


plate = Polygon((0, 0), (1, 0), (1, 1), (-1, 1), (-1, -1), (0, -1))
problem = Problem(
    lambda u, x, y, t: u.t - 0.2 * (u.xx + u.yy) - source(x, y, t),
    inputs=("x", "y", "t"),
    domain=plate * Interval(0, 1),
    conditions=[Dirichlet(u=0.0), Initial(u=0.0)],
    title="Heat in an L-shape, moving source",
)
