"""The Kuramoto-Sivashinsky equation, which becomes chaotic.

The suite's code has no condition at the ends; its data is periodic, and so is this statement.
"""

import math

import torch

from dudx.lab import Initial, Interval, Periodic, Problem

TITLE = "KS"

problem = Problem(
    lambda u: u.t + 100 / 16 * u * u.x + 100 / 16**2 * u.xx + 100 / 16**4 * u.xxxx,
    inputs=("x", "t"),
    domain=Interval(0, 2 * math.pi) * Interval(0, 1),
    conditions=[Periodic("x"), Initial(u=lambda x: torch.cos(x) * (1 + torch.sin(x)))],
    title=TITLE,
)
