"""Flow in a square lid-driven cavity, Re = 100."""

from dudx.lab import Box, Data, Dirichlet, Problem

RE = 100

problem = Problem(
    lambda u, v, p: (
        u * u.x + v * u.y + p.x - (u.xx + u.yy) / RE,
        u * v.x + v * v.y + p.y - (v.xx + v.yy) / RE,
        u.x + v.y,
    ),
    inputs=("x", "y"),
    domain=Box((0, 0), (1, 1)),
    conditions=[
        Dirichlet(u=1.0, v=0.0, on="top"),
        Dirichlet(u=0.0, v=0.0, on=["left", "right", "bottom"]),
        Data([[0.0, 0.0]], p=0.0),
    ],
    title="Lid-driven cavity, Re = 100",
)
