"""The heat equation in a ball of five dimensions, with a given flux through its surface."""

import torch

from dudx.lab import Ball, Initial, Interval, Neumann, Problem

TITLE = "HNd"
N = 5
NAMES = [f"x{i}" for i in range(N)]


def heat(points):
    square = (points[:, :N] ** 2).sum(dim=1, keepdim=True)
    return torch.exp(square / 2 + points[:, N:])


def cooling(points):
    return (points[:, :N] ** 2).sum(dim=1, keepdim=True) / N * heat(points)


problem = Problem(
    lambda u, points: u.t - u.laplacian(*NAMES) / N + cooling(points),
    inputs=(*NAMES, "t"),
    domain=Ball([0] * N, 1) * Interval(0, 1),
    conditions=[Neumann(u=heat), Initial(u=heat)],
    title=TITLE,
)
