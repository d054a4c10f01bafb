"""The Helmholtz equation with wave number 20."""

import torch

from dudx.lab import Box, Dirichlet, Problem

K = 20.0


def wave(x, y):
    return torch.sin(K * x) * torch.sin(K * y)


problem = Problem(
    lambda u, x, y: u.xx + u.yy + K**2 * u + K**2 * wave(x, y),
    inputs=("x", "y"),
    domain=Box((0, 0), (1, 1)),
    conditions=[Dirichlet(u=wave)],
    title="Helmholtz, k = 20",
)
