"""Poisson's equation in a cube of five dimensions."""

import math

import torch

from dudx.lab import Box, Dirichlet, Problem

TITLE = "PNd"
N = 5


def waves(points):
    return torch.sin(math.pi / 2 * points).sum(dim=1, keepdim=True)


problem = Problem(
    lambda u, points: u.laplacian() + math.pi**2 / 4 * waves(points),
    inputs=[f"x{i}" for i in range(N)],
    domain=Box([0] * N, [1] * N),
    conditions=[Dirichlet(u=waves)],
    title=TITLE,
)
