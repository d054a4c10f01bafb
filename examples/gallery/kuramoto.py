"""The Kuramoto-Sivashinsky equation, before it becomes chaotic."""

import math

import torch

from dudx.lab import Initial, Interval, Periodic, Problem

problem = Problem(
    lambda u: u.t + u * u.x + u.xx + u.xxxx,
    inputs=("x", "t"),
    domain=Interval(0, 32 * math.pi) * Interval(0, 20),
    conditions=[Periodic("x"), Initial(u=lambda x: torch.cos(x / 16) * (1 + torch.sin(x / 16)))],
    title="Kuramoto-Sivashinsky",
)
