"""Laplace's equation on a square with four round holes: u = 1 on the square's edge, u = 0 on the circles."""

from __future__ import annotations

import itertools

from dudx.lab.problems.conditions import Dirichlet
from dudx.lab.problems.geometry import Box, Cutout, Disc
from dudx.lab.problems.problem import Problem
from dudx.lab.problems.references import reference

HOLES = [Disc(center, 0.1) for center in itertools.product((-0.3, 0.3), repeat=2)]
DOMAIN = Cutout(Box((-0.5, -0.5), (0.5, 0.5)), *HOLES)


def poisson() -> Problem:
    """Make the problem."""
    return Problem(
        lambda u: u.xx + u.yy,
        inputs=("x", "y"),
        domain=DOMAIN,
        conditions=[Dirichlet(u=1.0, on=DOMAIN.outside), Dirichlet(u=0.0, on=DOMAIN.holes)],
        name="poisson",
        title="Poisson 2D with holes",
        label="Poisson 2D",
        solution=lambda: reference("poisson"),
        # The published weight, a hundred times that of boundaries in other problems.
        defaults={"weight_boundary": 1000.0},
    )


PROBLEM = poisson
