"""Poisson's equation on the unit square, whose solution is known, as terms for an optimizer."""

from __future__ import annotations

import math

import torch
from helpers import points

import dudx
from dudx.optim import Term

POISSON = dudx.Residual(lambda u, f: u.xx + u.yy - f, ("x", "y"), data=("f",))
VALUE = dudx.Residual(lambda u, g: u - g, ("x", "y"), data=("g",))


def exact(x):
    return torch.sin(math.pi * x[:, :1]) * torch.sin(math.pi * x[:, 1:]) + 0.3 * x[:, :1]


def poisson_terms(model, engine, inside, edge, weights=(1.0, 100.0)):
    f = -2 * math.pi**2 * (exact(inside) - 0.3 * inside[:, :1])
    return [
        Term(POISSON, model, inside, engine, weight=weights[0], data={"f": f}),
        Term(VALUE, model, edge, engine, weight=weights[1], data={"g": exact(edge)}),
    ]


def square(count, edge, seed=0, dtype=torch.float64):
    """Points in the unit square and on its edge."""
    inside = (points(count, 2, seed=seed) + 1) / 2
    rim = (points(edge, 2, seed=seed + 1) + 1) / 2
    side = torch.arange(edge) % 4
    rim[side < 2, 0] = (side[side < 2] % 2).to(rim)
    rim[side >= 2, 1] = (side[side >= 2] % 2).to(rim)
    return inside.to(dtype), rim.to(dtype)


def solved(optimizer, model, engine, steps, seed=0, dtype=torch.float64, weights=(1.0, 100.0), counts=(150, 80)):
    """The losses of some steps, with new points every five."""
    losses = []
    for step in range(steps):
        inside, edge = square(*counts, seed=100 * seed + step // 5, dtype=dtype)
        losses.append(optimizer.step(poisson_terms(model, engine, inside, edge, weights)))
    return losses


def relative_error(model, dtype=torch.float64):
    x, _ = square(2000, 4, seed=999, dtype=dtype)
    with torch.no_grad():
        return float((model(x) - exact(x)).norm() / exact(x).norm())
