"""The Allen-Cahn equation: layers form and move."""

import math

import torch

from dudx.lab import Initial, Interval, Periodic, Problem

problem = Problem(
    lambda u: u.t - 1e-4 * u.xx - 5 * u + 5 * u**3,
    inputs=("x", "t"),
    domain=Interval(-1, 1) * Interval(0, 1),
    conditions=[Periodic("x"), Initial(u=lambda x: x**2 * torch.cos(math.pi * x))],
    title="Allen-Cahn",
)
