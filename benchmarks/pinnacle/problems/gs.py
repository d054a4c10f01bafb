"""The Gray-Scott reaction in the plane: spots that divide.

The suite's code has no condition on the boundary; its data is periodic, and so is this statement.
"""

import torch

from dudx.lab import Box, Initial, Interval, Periodic, Problem

TITLE = "GS"

problem = Problem(
    lambda u, v: (
        u.t - 1e-5 * (u.xx + u.yy) - 0.04 * (1 - u) + u * v * v,
        v.t - 5e-6 * (v.xx + v.yy) + 0.1 * v - u * v * v,
    ),
    inputs=("x", "y", "t"),
    domain=Box((-1, -1), (1, 1)) * Interval(0, 200),
    conditions=[
        Periodic("x", "y"),
        Initial(
            u=lambda x, y: 1 - torch.exp(-80 * ((x + 0.05) ** 2 + (y + 0.02) ** 2)),
            v=lambda x, y: torch.exp(-80 * ((x - 0.05) ** 2 + (y - 0.02) ** 2)),
        ),
    ],
    title=TITLE,
)
