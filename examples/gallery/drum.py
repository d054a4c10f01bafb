"""Lowest eigenvalue of a round drum."""

from dudx.lab import Data, Dirichlet, Disc, Problem

problem = Problem(
    lambda u, tone: u.xx + u.yy + tone * u,
    inputs=("x", "y"),
    domain=Disc((0, 0), 1),
    conditions=[Dirichlet(u=0.0), Data([[0.0, 0.0]], u=1.0)],
    unknowns={"tone": 4.0},
    title="Drum",
)
