"""Laplace's equation in a body from an STL file."""

from pathlib import Path

import torch

from dudx.lab import Dirichlet, Mesh, Problem


def heat(x, y, z):
    return torch.exp(x) * torch.sin(y) + x * z


problem = Problem(
    lambda u: u.xx + u.yy + u.zz,
    inputs=("x", "y", "z"),
    domain=Mesh(Path(__file__).parent / "torus.stl"),
    conditions=[Dirichlet(u=heat)],
    title="Body from an STL file",
)
