"""A function given by its values at the nodes of quadratic triangles, evaluated anywhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import KDTree

from dudx.lab.problems.references.reference_solution import Array

Indices = NDArray[np.integer]
# The triangle that holds a point is among those with the nearest centers, so many; if not, all are tried.
_CANDIDATES = 16
# How far outside the best triangle a point may be, in barycentric coordinates, before the others are tried.
_OUTSIDE = 1e-3
_NEWTON_STEPS = 4
_ROWS_AT_ONCE = 2**15


@dataclass(frozen=True)
class Nodes:
    """The nodes (n, 2) of triangles (m, 6): three corners, then the middles of the edges 01, 12 and 02."""

    places: Array
    triangles: Indices

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Nodes:
        return cls(arrays["places"], arrays["triangles"].astype(np.int64))

    def arrays(self) -> dict[str, np.ndarray]:
        return {"places": self.places, "triangles": self.triangles.astype(np.min_scalar_type(len(self.places)))}

    def weights(self, points: Array) -> tuple[Indices, Array]:
        """The nodes (N, 6) and weights (N, 6) whose sum of products is the value at each of the points (N, 2)."""
        found = [self._weights(points[rows]) for rows in slices(len(points))]
        return np.concatenate([nodes for nodes, _ in found]), np.concatenate([weights for _, weights in found])

    def interpolated(self, values: Array, points: Array) -> Array:
        """The values (N,) at points (N, 2) of the function with those values (n,) at the nodes."""
        nodes, weights = self.weights(points)
        return (values[nodes] * weights).sum(axis=1)

    def _weights(self, points: Array) -> tuple[Indices, Array]:
        nearest = np.asarray(self._centers.query(points, k=min(_CANDIDATES, len(self.triangles)))[1])
        triangle, local = self._best(points, nearest)
        lost = np.minimum(local, 1 - local.sum(axis=1, keepdims=True)).min(axis=1) < -_OUTSIDE
        for row in np.flatnonzero(lost):
            triangle[row], local[row] = self._best(points[row : row + 1], np.arange(len(self.triangles))[None])
        nodes, bent = self.triangles[triangle], self._bent[triangle]
        local[bent] = _inverted(points[bent], self.places[nodes[bent]], local[bent])
        return nodes, _shapes(local)

    def _best(self, points: Array, candidates: Indices) -> tuple[Indices, Array]:
        """Choose among candidates (N, k) the straight triangle each point is deepest in, with its coordinates (N, 2).

        A triangle along a hole is curved inwards, so a point of it is in the straight one as well.
        """
        origin, inverse = self._affine
        local = np.einsum("nkij,nkj->nki", inverse[candidates], points[:, None] - origin[candidates])
        depth = np.minimum(local.min(axis=2), 1 - local.sum(axis=2))
        rows, best = np.arange(len(points)), depth.argmax(axis=1)
        return candidates[rows, best], local[rows, best]

    @cached_property
    def _centers(self) -> KDTree:
        return KDTree(self.places[self.triangles[:, :3]].mean(axis=1))

    @cached_property
    def _affine(self) -> tuple[Array, Array]:
        """The first corner of each straight triangle, and the inverse of the matrix of its two sides from there."""
        first, second, third = (self.places[self.triangles[:, corner]] for corner in range(3))
        return first, np.asarray(np.linalg.inv(np.stack([second - first, third - first], axis=2)), dtype=np.float64)

    @cached_property
    def _bent(self) -> NDArray[np.bool_]:
        """Mark the curved triangles, with an edge whose middle node is not in its middle."""
        corners, middles = self.places[self.triangles[:, :3]], self.places[self.triangles[:, 3:]]
        offset = np.abs(middles - (corners[:, [0, 1, 0]] + corners[:, [1, 2, 2]]) / 2)
        return offset.max(axis=(1, 2)) > 1e-12


def mirrored(points: Array, values: Array) -> tuple[Array, Array]:
    """Points (n, 2) in the quarter x ≥ 0, y ≥ 0 and values (n, ...) there, in all four quarters."""
    for axis, flip in enumerate(np.array([[-1.0, 1.0], [1.0, -1.0]])):
        off_axis = points[:, axis] > 0
        points = np.concatenate([points, points[off_axis] * flip])
        values = np.concatenate([values, values[off_axis]])
    return points, values


def slices(n: int) -> Iterator[slice]:
    """A range of rows in parts that need little memory."""
    # At least one, so that no points give no values rather than an error.
    return (slice(start, start + _ROWS_AT_ONCE) for start in range(0, max(n, 1), _ROWS_AT_ONCE))


def _inverted(points: Array, nodes: Array, local: Array) -> Array:
    """The local coordinates in curved triangles, by Newton's method from those in the straight ones."""
    for _ in range(_NEWTON_STEPS):
        error = np.einsum("nk,nki->ni", _shapes(local), nodes) - points
        jacobian = np.einsum("nkj,nki->nij", _slopes(local), nodes)
        local = local - np.linalg.solve(jacobian, error[:, :, None])[:, :, 0]
    return local


def _shapes(local: Array) -> Array:
    """The six quadratic shape functions (N, 6) at local coordinates (N, 2)."""
    b, c = local.T
    a = 1 - b - c
    corners = [a * (2 * a - 1), b * (2 * b - 1), c * (2 * c - 1)]
    return np.stack([*corners, 4 * a * b, 4 * b * c, 4 * a * c], axis=1)


def _slopes(local: Array) -> Array:
    """Their derivatives (N, 6, 2) in the local coordinates."""
    b, c = local.T
    a, zero = 1 - b - c, np.zeros(len(local))
    by_b = [1 - 4 * a, 4 * b - 1, zero, 4 * (a - b), 4 * c, -4 * c]
    by_c = [1 - 4 * a, zero, 4 * c - 1, -4 * b, 4 * b, 4 * (a - c)]
    return np.stack([np.stack(by_b, axis=1), np.stack(by_c, axis=1)], axis=2)
