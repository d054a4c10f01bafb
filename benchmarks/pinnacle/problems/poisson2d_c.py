"""Laplace's equation in a square with four round holes."""

from dudx.lab import Box, Dirichlet, Disc, Problem

TITLE = "Poisson2d-C"
HOLES = [Disc((x, y), 0.1) for x in (-0.3, 0.3) for y in (-0.3, 0.3)]

plate = Box((-0.5, -0.5), (0.5, 0.5))
for hole in HOLES:
    plate = plate - hole

problem = Problem(
    lambda u: u.xx + u.yy,
    inputs=("x", "y"),
    domain=plate,
    conditions=[Dirichlet(u=1.0, on="outside"), Dirichlet(u=0.0, on="holes")],
    title=TITLE,
)
