"""The nonlinear Schrödinger equation, real and imaginary part, of a breathing pulse."""

import math

import torch

from dudx.lab import Initial, Interval, Periodic, Problem

problem = Problem(
    lambda u, v: (u.t + v.xx / 2 + (u * u + v * v) * v, v.t - u.xx / 2 - (u * u + v * v) * u),
    inputs=("x", "t"),
    domain=Interval(-5, 5) * Interval(0, math.pi / 2),
    conditions=[Periodic("x"), Initial(u=lambda x: 2 / torch.cosh(x), v=0.0)],
    title="Nonlinear Schrödinger",
)
