"""An unknown conductivity k(x, y) from 500 temperatures measured with 1 % noise."""

import math

import torch

from dudx.lab import Box, Data, Dirichlet, Problem

PI = math.pi
draw = torch.Generator().manual_seed(0)
places = torch.rand(500, 2, generator=draw, dtype=torch.float64)
measured = torch.sin(PI * places).prod(dim=1) + 0.01 * torch.randn(500, generator=draw, dtype=torch.float64)


def heating(x, y):
    """Source term of the true conductivity k = 1 + sin(πx) y / 2."""
    sx, sy, cx, cy = torch.sin(PI * x), torch.sin(PI * y), torch.cos(PI * x), torch.cos(PI * y)
    return PI**2 * ((2 + sx * y) * sx * sy - cx**2 * sy * y / 2) - PI / 2 * sx**2 * cy


problem = Problem(
    lambda u, k, x, y: k * (u.xx + u.yy) + k.x * u.x + k.y * u.y + heating(x, y),
    inputs=("x", "y"),
    domain=Box((0, 0), (1, 1)),
    conditions=[Dirichlet(u=0.0), Data(places, u=measured)],
    functions={"k": ("x", "y")},
    title="Unknown conductivity",
)
