"""A clamped plate under load: the biharmonic equation."""

import math

import torch

from dudx.lab import Box, Dirichlet, Neumann, Problem

W = 2 * math.pi


def load(x, y):
    """Load whose deflection is sin² πx sin² πy."""
    a, b = torch.cos(W * x), torch.cos(W * y)
    return W**4 / 4 * (4 * a * b - a - b)


problem = Problem(
    lambda u, x, y: u.xxxx + 2 * u.xxyy + u.yyyy - load(x, y),
    inputs=("x", "y"),
    domain=Box((0, 0), (1, 1)),
    conditions=[Dirichlet(u=0.0), Neumann(u=0.0)],
    title="Clamped plate",
)
