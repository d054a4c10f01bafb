"""Heat in a plate with 17 round holes that warm it: u_t = Δu, u = 0 at first, ∂u/∂n = g − u on every boundary.

The plate is symmetric in both axes, so a quarter of it is stored, at some times; `reproduction/references/heat.py`
computes it. At t = 0 the plate is cold and the flux is not, so u grows like √t at the boundary, and is interpolated
in √t.

The stored solution is within 7e-5 (relative L2 over space and time) of one with half the mesh size and half the steps.
Compared with what little heat there is at the time, it is within about 3e-4 from t = 0.1 on, 1e-3 from 0.03 and 1e-2
from 0.003; before that the layer of heat is thinner than a triangle.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np
from scipy.interpolate import CubicSpline

from dudx.lab.problems.geometry import Box, Cutout, Disc, Interval
from dudx.lab.problems.references.nodal import Nodes, mirrored, slices
from dudx.lab.problems.references.reference_solution import Array, Reference

BIG, SMALL = 1.0, 0.4
END = 3.0
SCORED_TIMES = np.linspace(0, END, 31)
_BIG_HOLES = [*product((-4.0, 4.0), (-9.0, -3.0, 3.0, 9.0)), *product((0.0,), (-6.0, 0.0, 6.0))]
_SMALL_HOLES = product((-3.2, 3.2), (-6.0, 0.0, 6.0))
PLATE = Cutout(
    Box((-8.0, -12.0), (8.0, 12.0)),
    *(Disc(center, BIG) for center in _BIG_HOLES),
    *(Disc(center, SMALL) for center in _SMALL_HOLES),
)


@dataclass(frozen=True)
class Snapshots:
    """The solution at all times from its values (times, n) at the nodes and some times."""

    nodes: Nodes
    times: Array
    values: Array

    def __call__(self, points: Array) -> Array:
        """The values (N,) at points (N, 3)."""
        # Nothing here cools below its beginning: what falls below zero in the first moments is numerical.
        return np.concatenate([self._at(points[rows]) for rows in slices(len(points))]).clip(min=0)

    def _at(self, points: Array) -> Array:
        nodes, weights = self.nodes.weights(np.abs(points[:, :2]))
        knots = self._spline.x
        root = np.sqrt(points[:, 2].clip(self.times[0], self.times[-1]))
        interval = np.searchsorted(knots[1:-1], root, side="right")
        cubic, square, linear, constant = self._spline.c[:, interval[:, None], nodes]
        since = (root - knots[interval])[:, None]
        return (weights * (((cubic * since + square) * since + linear) * since + constant)).sum(axis=1)

    @cached_property
    def _spline(self) -> CubicSpline:
        return CubicSpline(np.sqrt(self.times), self.values)


def load(arrays: Mapping[str, np.ndarray]) -> Reference:
    """The solution, scored at the corners of all triangles of the whole plate, at 31 times."""
    nodes, times, values = Nodes.from_arrays(arrays), arrays["times"], arrays["values"].astype(np.float64)
    corners = np.unique(nodes.triangles[:, :3])
    scored = values[np.isclose(times[:, None], SCORED_TIMES).any(axis=1)]
    places, by_place = mirrored(nodes.places[corners], scored[:, corners].T)
    points = np.column_stack([np.tile(places, (len(SCORED_TIMES), 1)), np.repeat(SCORED_TIMES, len(places))])
    return Reference(
        name="heat",
        domain=PLATE * Interval(0.0, END),
        points=points,
        values=by_place.T.reshape(-1, 1).clip(min=0),
        evaluate=Snapshots(nodes, times, values),
    )
