"""The Gray-Scott reaction-diffusion system in one dimension."""

import torch

from dudx.lab import Initial, Interval, Periodic, Problem

problem = Problem(
    lambda u, v: (
        u.t - 1e-5 * u.xx - 0.04 * (1 - u) + u * v * v,
        v.t - 5e-6 * v.xx + 0.1 * v - u * v * v,
    ),
    inputs=("x", "t"),
    domain=Interval(-1, 1) * Interval(0, 100),
    conditions=[
        Periodic("x"),
        Initial(u=lambda x: 1 - torch.exp(-80 * (x + 0.05) ** 2), v=lambda x: torch.exp(-80 * (x - 0.05) ** 2)),
    ],
    title="Gray-Scott",
)
