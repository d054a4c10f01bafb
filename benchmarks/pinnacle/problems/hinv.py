"""An unknown conductivity a(x, y) from 2500 temperatures at random places and times, with a noise of 0.1.

Places, times and noise are drawn here, with a fixed seed, uniformly and normally as the suite's.
"""

import math

import torch

from dudx.lab import Box, Data, Dirichlet, Interval, Problem

TITLE = "HInv"
PI = math.pi


def wave(x, y):
    return torch.sin(PI * x) * torch.sin(PI * y)


def conductivity(x, y):
    return 2 + wave(x, y)


def temperature(x, y, t):
    return torch.exp(-t) * wave(x, y)


def source(x, y, t):
    s, slopes = wave(x, y), (torch.cos(PI * x) * torch.sin(PI * y)) ** 2 + (torch.sin(PI * x) * torch.cos(PI * y)) ** 2
    return torch.exp(-t) * ((4 * PI**2 - 1) * s + PI**2 * (2 * s**2 - slopes))


draw = torch.Generator().manual_seed(0)
places = torch.rand(2500, 3, generator=draw, dtype=torch.float64) * torch.tensor([2, 2, 1]) - torch.tensor([1, 1, 0])
noise = 0.1 * torch.randn(len(places), generator=draw, dtype=torch.float64)

problem = Problem(
    lambda u, a, x, y, t: u.t - a * (u.xx + u.yy) - a.x * u.x - a.y * u.y - source(x, y, t),
    inputs=("x", "y", "t"),
    domain=Box((-1, -1), (1, 1)) * Interval(0, 1),
    conditions=[Data(places, u=temperature(*places.T) + noise), Dirichlet(a=conductivity)],
    functions={"a": ("x", "y")},
    title=TITLE,
)
