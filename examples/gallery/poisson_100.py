"""Poisson's equation in 100 dimensions."""

import torch

from dudx.lab import Box, Dirichlet, Problem

N = 100


def along(points):
    return points.sum(dim=1, keepdim=True) / N**0.5


problem = Problem(
    lambda u, points: u.laplacian() - 2 + torch.sin(along(points)),
    inputs=[f"x{i}" for i in range(N)],
    domain=Box([-1] * N, [1] * N),
    conditions=[Dirichlet(u=lambda points: along(points) ** 2 + torch.sin(along(points)))],
    title="Poisson in 100 dimensions",
)
