"""An unknown conductivity a(x, y) from 2500 temperatures with a noise of 0.1.

The suite's source has 2x + 1 and 2y + 1 where its own solution needs 2x - 1 and 2y - 1; this one is right. The noise
is drawn here, with a fixed seed: the suite draws it anew in each run.
"""

import math

import torch

from dudx.lab import Box, Data, Dirichlet, Problem

TITLE = "PInv"
PI = math.pi


def temperature(x, y):
    return torch.sin(PI * x) * torch.sin(PI * y)


def conductivity(x, y):
    return 1 / (1 + x**2 + y**2 + (x - 1) ** 2 + (y - 1) ** 2)


def source(x, y):
    slopes = (2 * x - 1) * torch.cos(PI * x) * torch.sin(PI * y) + (2 * y - 1) * torch.sin(PI * x) * torch.cos(PI * y)
    a = conductivity(x, y)
    return 2 * PI**2 * temperature(x, y) * a + 2 * PI * slopes * a**2


ticks = torch.linspace(0, 1, 50, dtype=torch.float64)
places = torch.cartesian_prod(ticks, ticks)
noise = 0.1 * torch.randn(len(places), generator=torch.Generator().manual_seed(0), dtype=torch.float64)

problem = Problem(
    lambda u, a, x, y: a * (u.xx + u.yy) + a.x * u.x + a.y * u.y + source(x, y),
    inputs=("x", "y"),
    domain=Box((0, 0), (1, 1)),
    conditions=[Data(places, u=temperature(*places.T) + noise), Dirichlet(a=conductivity)],
    functions={"a": ("x", "y")},
    title=TITLE,
)
