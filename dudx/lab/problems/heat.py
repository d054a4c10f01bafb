"""Heat in a plate with 17 round holes that warm it, and an edge that cools it (Robin conditions everywhere)."""

from __future__ import annotations

import itertools

import torch

from dudx.lab.features import (
    DiffusionFront,
    EvenFeatures,
    Features,
    FlatWall,
    HardConstraint,
    LogDistance,
    RoundWall,
    SmoothSqrt,
    mirrored_walls,
)
from dudx.lab.problems.conditions import Initial, Robin
from dudx.lab.problems.geometry import Box, Cutout, Disc, Interval
from dudx.lab.problems.problem import Problem
from dudx.lab.problems.references import reference

BIG = [
    Disc(center, 1.0)
    for center in (*itertools.product((-4.0, 4.0), (-9.0, -3.0, 3.0, 9.0)), (0.0, 0.0), (0.0, 6.0), (0.0, -6.0))
]
SMALL = [Disc(center, 0.4) for center in itertools.product((-3.2, 3.2), (-6.0, 0.0, 6.0))]
PLATE = Cutout(Box((-8.0, -12.0), (8.0, 12.0)), *BIG, *SMALL)
DOMAIN = PLATE * Interval(0.0, 3.0)


def features() -> Features:
    """Columns even in x and y, √t, and per kind of hole the steady profile and the diffusion front."""
    holes = [mirrored_walls(RoundWall(hole, 1.0)) for hole in ((0.0, 0.0), (0.0, 6.0), (4.0, 3.0), (4.0, 9.0))]
    holes += [mirrored_walls(RoundWall(hole, 0.4)) for hole in ((3.2, 0.0), (3.2, 6.0))]
    edge = [FlatWall(axis, side * size, -side) for axis, size in ((0, 8.0), (1, 12.0)) for side in (1, -1)]
    return Features(
        EvenFeatures(0),
        EvenFeatures(1),
        SmoothSqrt(2),
        LogDistance(holes),
        DiffusionFront([*holes, edge], time=2, flux=True),
        at=DOMAIN.sobol(4096, dtype=torch.get_default_dtype()),
    )


def heat() -> Problem:
    """Make the problem."""
    return Problem(
        lambda u: u.t - u.xx - u.yy,
        inputs=("x", "y", "t"),
        domain=DOMAIN,
        conditions=[
            Initial(u=0.0),
            Robin(a=1.0, g=0.1, on=PLATE.outside),
            Robin(a=1.0, g=5.0, on=BIG),
            Robin(a=1.0, g=1.0, on=SMALL),
        ],
        name="heat",
        title="Heat 2D, complex geometry",
        label="Heat2D-CG",
        solution=lambda: reference("heat"),
        rescaled=True,
        features=features,
        hard=lambda: HardConstraint(SmoothSqrt(2)),
    )


PROBLEM = heat
