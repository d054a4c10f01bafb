"""Laplace's equation on a square with four round holes: u = 1 on the square's edge, u = 0 on the circles.

The square is symmetric in both axes, so a quarter of it is stored; `reproduction/references/poisson.py` computes it.
The stored solution is within 1e-5 (relative L2) of one on a mesh of half the size.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

import numpy as np

from dudx.lab.problems.geometry import Box, Cutout, Disc
from dudx.lab.problems.references.nodal import Nodes, mirrored
from dudx.lab.problems.references.reference_solution import Reference

DOMAIN = Cutout(Box((-0.5, -0.5), (0.5, 0.5)), *(Disc(center, 0.1) for center in product((-0.3, 0.3), repeat=2)))


def load(arrays: Mapping[str, np.ndarray]) -> Reference:
    """The solution, scored at all nodes of the whole square."""
    nodes, values = Nodes.from_arrays(arrays), arrays["values"]
    points, scored = mirrored(nodes.places, values)
    return Reference(
        name="poisson",
        domain=DOMAIN,
        points=points,
        values=scored[:, None],
        evaluate=lambda x: nodes.interpolated(values, np.abs(x)),
    )
