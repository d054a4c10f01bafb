"""Waves in a square for a long time, driven from its edges.

The suite gives a formula and uses it for the edges, for the first moment, and as the solution, which it is not: the
right-hand side of the equation has the other sign for it. Equation, edges and first moment are kept; the solution is
another one. The suite gives no velocity at the first moment; the formula's is 0.
"""

import math

import torch

from dudx.lab import Box, Dirichlet, Initial, Interval, Problem

TITLE = "Wave2d-MS"
PI = math.pi


def shape(x, y):
    return torch.sin(PI * x) * torch.sinh(PI * y) + torch.sinh(3 * PI * x) * torch.sin(2 * PI * y)


problem = Problem(
    lambda u: u.tt - u.xx - 2 * u.yy,
    inputs=("x", "y", "t"),
    domain=Box((0, 0), (1, 1)) * Interval(0, 100),
    conditions=[
        Dirichlet(u=lambda x, y, t: shape(x, y) * torch.cos(PI * t)),
        Initial(u=shape, u_t=0.0),
    ],
    title=TITLE,
)
