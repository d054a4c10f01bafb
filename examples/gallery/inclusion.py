"""Steady heat in a plate (u) with a round inclusion (v) that conducts ten times better."""

import torch

from dudx.lab import Box, Dirichlet, Disc, Interface, Problem

K, R = 10.0, 0.5


def around(x, y):
    return x * (1 - (K - 1) / (K + 1) * R**2 / (x**2 + y**2))


problem = Problem(
    lambda u, v, x, y: torch.where(x**2 + y**2 > R**2, u.xx + u.yy, v.xx + v.yy),
    inputs=("x", "y"),
    domain=Box((-1, -1), (1, 1)),
    conditions=[
        Dirichlet(u=around),
        Interface(lambda u, v, n: (u - v, u.along(n) - K * v.along(n)), at=Disc((0, 0), R)),
    ],
    title="Inclusion that conducts better",
)
