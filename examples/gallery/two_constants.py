"""Two unknown constants of diffusion with decay, from 50 values with 2 % noise."""

import math

import numpy as np
import torch

from dudx.lab import Data, Dirichlet, Initial, Interval, Problem

TRUE = {"D": 0.1, "k": 0.75}


def exact(x, t):
    first = torch.sin(math.pi * x) * torch.exp(-(TRUE["D"] * math.pi**2 + TRUE["k"]) * t)
    return first + 0.6 * torch.sin(2 * math.pi * x) * torch.exp(-(TRUE["D"] * 4 * math.pi**2 + TRUE["k"]) * t)


random = np.random.default_rng(0)
points = np.stack([random.uniform(0.05, 0.95, 50), random.uniform(0.05, 1, 50)], axis=1)
x, t = torch.from_numpy(points).T
values = exact(x, t) + 0.02 * torch.from_numpy(random.standard_normal(50))

problem = Problem(
    lambda u, D, k: u.t - D * u.xx + k * u,
    inputs=("x", "t"),
    domain=Interval(0, 1) * Interval(0, 1),
    conditions=[Dirichlet(u=0.0), Initial(u=lambda x: exact(x, torch.zeros_like(x))), Data(points, u=values)],
    unknowns={"D": 0.05, "k": 0.3},
    title="Diffusion with decay, two unknown constants",
)
