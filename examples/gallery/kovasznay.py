"""Kovasznay flow behind a grid, Re = 40."""

import math

import torch

from dudx.lab import Box, Dirichlet, Problem

RE = 40
L = RE / 2 - math.sqrt(RE**2 / 4 + 4 * math.pi**2)

problem = Problem(
    lambda u, v, p: (
        u * u.x + v * u.y + p.x - (u.xx + u.yy) / RE,
        u * v.x + v * v.y + p.y - (v.xx + v.yy) / RE,
        u.x + v.y,
    ),
    inputs=("x", "y"),
    domain=Box((-0.5, -0.5), (1.0, 1.5)),
    conditions=[
        Dirichlet(
            u=lambda x, y: 1 - torch.exp(L * x) * torch.cos(2 * math.pi * y),
            v=lambda x, y: L / (2 * math.pi) * torch.exp(L * x) * torch.sin(2 * math.pi * y),
        ),
        Dirichlet(p=lambda x: (1 - torch.exp(2 * L * x)) / 2, on="right"),
    ],
    title="Kovasznay flow, Re = 40",
)
