"""Burgers' equation with little viscosity: a shock forms at x = 0."""

import math

import torch

from dudx.lab import Dirichlet, Initial, Interval, Problem

TITLE = "Burgers1d-C"

problem = Problem(
    lambda u: u.t + u * u.x - 0.01 / math.pi * u.xx,
    inputs=("x", "t"),
    domain=Interval(-1, 1) * Interval(0, 1),
    conditions=[Initial(u=lambda x: -torch.sin(math.pi * x)), Dirichlet(u=0.0)],
    title=TITLE,
)
