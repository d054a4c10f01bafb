"""The wave equation of a plucked string, whose initial state has a kink."""

import torch

from dudx.lab import Dirichlet, Initial, Interval, Problem

problem = Problem(
    lambda u: u.tt - u.xx,
    inputs=("x", "t"),
    domain=Interval(0, 1) * Interval(0, 1),
    conditions=[Initial(u=lambda x: 0.5 - torch.abs(x - 0.5), u_t=0.0), Dirichlet(u=0.0)],
    title="Plucked string",
)
