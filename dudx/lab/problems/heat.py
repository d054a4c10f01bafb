"""Heat in a plate with 17 round holes that warm it, and an edge that cools it (Robin conditions everywhere)."""

from __future__ import annotations

import itertools

import torch
from torch import Generator

from dudx.lab.features import Even, Features, Flat, Front, Hard, Logarithm, Root, Round, mirrored
from dudx.lab.problems.base import Condition, Points, Problem
from dudx.lab.problems.geometry import Box, Circle, Cutout, Disc, Interval
from dudx.lab.problems.references import reference
from dudx.residual import Residual

INPUTS = ("x", "y", "t")
BIG = [*itertools.product((-4.0, 4.0), (-9.0, -3.0, 3.0, 9.0)), (0.0, 0.0), (0.0, 6.0), (0.0, -6.0)]
SMALL = list(itertools.product((-3.2, 3.2), (-6.0, 0.0, 6.0)))
PLATE = Cutout(
    Box((-8.0, -12.0), (8.0, 12.0)), *(Disc(center, 1.0) for center in BIG), *(Disc(center, 0.4) for center in SMALL)
)
DOMAIN = PLATE * Interval(0.0, 3.0)


def source(piece: object) -> float:
    """The g of ∂u/∂n = g - u: 5 on big circles, 1 on small ones, 0.1 on the outer edge."""
    if not isinstance(piece, Circle):
        return 0.1
    return 5.0 if piece.radius == 1.0 else 1.0


def initial(n: int, generator: Generator, device: torch.device, dtype: torch.dtype) -> Points:
    """Points at t = 0, where the plate is cold."""
    points = DOMAIN.sample_initial(n, generator, device, dtype)
    return points, {"g": torch.zeros_like(points[:, :1])}


def boundary(n: int, generator: Generator, device: torch.device, dtype: torch.dtype) -> Points:
    """Points on all edges at all times, with the normal out of the plate."""
    points, normals, piece = DOMAIN.sample_boundary(n, generator, device, dtype)
    sources = torch.tensor([source(p.surface) for p in DOMAIN.pieces], device=device, dtype=dtype)
    return points, {"n": normals, "g": sources[piece].unsqueeze(1)}


def features() -> Features:
    """Even in x and y, in √t, with the steady flow around each kind of hole and how far heat has come from it."""
    holes = [mirrored(Round(hole, 1.0)) for hole in ((0.0, 0.0), (0.0, 6.0), (4.0, 3.0), (4.0, 9.0))]
    holes += [mirrored(Round(hole, 0.4)) for hole in ((3.2, 0.0), (3.2, 6.0))]
    edge = [Flat(axis, side * size, -side) for axis, size in ((0, 8.0), (1, 12.0)) for side in (1, -1)]
    return Features(
        Even(0),
        Even(1),
        Root(2),
        Logarithm(holes),
        Front([*holes, edge], time=2, flux=True),
        at=DOMAIN.sobol(4096, dtype=torch.get_default_dtype()),
    )


def heat() -> Problem:
    """The problem, ready to be trained on."""
    return Problem(
        name="heat",
        title="Heat 2D, complex geometry",
        label="Heat2D-CG",
        inputs=INPUTS,
        domain=DOMAIN,
        residual=Residual(lambda u: u.t - u.xx - u.yy, INPUTS),
        conditions=[
            Condition("initial", "initial", Residual(lambda u, g: u - g, INPUTS, data=("g",)), initial),
            Condition(
                "boundary", "boundary", Residual(lambda u, n, g: u.along(n) + u - g, INPUTS, data=("n", "g")), boundary
            ),
        ],
        solution=lambda: reference("heat"),
        rescaled=True,
        features=features,
        hard=lambda: Hard(Root(2)),
    )


PROBLEM = heat
