"""Meshes of a rectangle with round holes: quadratic triangles whose boundary edges follow the circles.

The local size is h times a fixed function of the place, finest at the holes. So meshes of different h look alike, and
errors fall with a clean power of h.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise, permutations, product

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.spatial import Delaunay, KDTree
from skfem import MeshTri1, MeshTri2

from dudx.errors import InputError
from dudx.lab.problems.geometry import Box, Cutout, Disc
from dudx.lab.problems.references.nodal import Nodes
from dudx.lab.problems.references.reference_solution import Array

Indices = NDArray[np.integer]
Curve = Callable[[Array], Array]
# A new point must keep this distance from all others, in units of the local size.
_CLEARANCE = 0.65
_SMOOTHING_STEPS = 8
_ROW_HEIGHT = math.sqrt(3) / 2  # of equilateral triangles with sides of 1


@dataclass(frozen=True)
class Plate:
    """A rectangle with round holes, which may reach over its edges, and how fine its mesh is, in units of h.

    The size is `near` times the root of the radius at a hole (small holes deserve smaller triangles, but not as much
    smaller as they are themselves), grows by `slope` times the distance from it, and is at most 1.
    """

    low: tuple[float, float]
    high: tuple[float, float]
    holes: tuple[tuple[float, float, float], ...]
    near: float
    slope: float

    @property
    def domain(self) -> Cutout:
        return Cutout(Box(self.low, self.high), *(Disc((x, y), radius) for x, y, radius in self.holes))

    def mirrored(self) -> Plate:
        """The plate with its mirror images, where its lower edges are the axes x = 0 and y = 0."""
        holes = {(i * x, j * y, radius) for x, y, radius in self.holes for i, j in product((1, -1), repeat=2)}
        return replace(self, low=(-self.high[0], -self.high[1]), holes=tuple(sorted(holes)))

    def from_holes(self, points: Array) -> Array:
        """The distances (N, holes) from the edges of the holes."""
        x, y, radius = np.array(self.holes).T
        return np.hypot(points[:, :1] - x, points[:, 1:] - y) - radius

    def inside(self, points: Array, margin: Array | float = 0.0) -> NDArray[np.bool_]:
        """Mark the points in the plate that are at least this far from its boundary."""
        return self.domain.signed_distance(torch.from_numpy(points)).numpy() <= -margin

    def size(self, points: Array) -> Array:
        """The size of the triangles at those points, in units of h."""
        at_hole = self.near * np.sqrt(np.array(self.holes)[:, 2])
        return np.minimum(1, (at_hole + self.slope * self.from_holes(points).clip(min=0)).min(axis=1))


def triangulated(plate: Plate, h: float) -> MeshTri2:
    """A mesh with triangles of size h and, near the holes, less."""
    boundary = _distinct(np.concatenate([_spaced(plate, curve, h) for curve in _curves(plate)]))
    interior = _thinned(plate, _candidates(plate, h), boundary, h)
    points = np.concatenate([boundary, interior])
    for _ in range(_SMOOTHING_STEPS):
        points = _smoothed(points, _triangles(plate, points), fixed=len(boundary))
    mesh = MeshTri2.from_mesh(MeshTri1(points.T.copy(), _triangles(plate, points).T.copy()))
    ends = boundary_ends(mesh)
    if ends.shape[1] != len(boundary) or ends.max() >= len(boundary):
        raise InputError(f"Triangles of size h = {h} cannot follow the boundary of the plate; choose a smaller h.")
    return _curved(plate, mesh)


def _curves(plate: Plate) -> Iterator[Curve]:
    """The boundary, cut where circles meet edges: functions from [0, 1], as many as there are smooth parts."""
    crossings = _crossings(plate)
    for axis, level in product((0, 1), (plate.low, plate.high)):
        ends = np.array([plate.low, plate.high], dtype=float)
        ends[:, axis] = level[axis]
        on_edge = crossings[np.isclose(crossings[:, axis], level[axis])]
        stops = np.concatenate([ends, on_edge])
        stops = stops[np.argsort(stops[:, 1 - axis])]
        for start, end in pairwise(stops):
            yield from _if_boundary(plate, partial(_segment, start, end))
    for (x, y, radius), distance in zip(plate.holes, plate.from_holes(crossings).T, strict=True):
        on_circle = crossings[np.isclose(distance, 0)]
        angles = np.sort(np.arctan2(on_circle[:, 1] - y, on_circle[:, 0] - x))
        # A whole circle is cut at one place all the same, to have a first point.
        angles = angles if len(angles) else np.zeros(1)
        for start, end in pairwise([*angles, angles[0] + 2 * math.pi]):
            yield from _if_boundary(plate, partial(_arc, x, y, radius, start, end))


def _crossings(plate: Plate) -> Array:
    """The points where circles meet the edges of the rectangle."""
    found = np.empty((0, 2))
    for (*center, radius), axis, level in product(plate.holes, (0, 1), (plate.low, plate.high)):
        gap = level[axis] - center[axis]
        if abs(gap) < radius:
            half_chord = math.sqrt(radius**2 - gap**2)
            both = np.full((2, 2), level[axis], dtype=float)
            both[:, 1 - axis] = center[1 - axis] - half_chord, center[1 - axis] + half_chord
            found = np.concatenate([found, both])
    return found[((found >= plate.low) & (found <= plate.high)).all(axis=1)]


def _segment(start: Array, end: Array, s: Array) -> Array:
    return start + (end - start) * s[:, None]


def _arc(x: float, y: float, radius: float, start: float, end: float, s: Array) -> Array:
    angle = start + (end - start) * s
    return np.stack([x + radius * np.cos(angle), y + radius * np.sin(angle)], axis=1)


def _if_boundary(plate: Plate, curve: Curve) -> Iterator[Curve]:
    """The curve, unless it runs within a hole or outside the rectangle."""
    if plate.inside(curve(np.array([0.5])), margin=-1e-9 * max(plate.high)).all():
        yield curve


def _spaced(plate: Plate, curve: Curve, h: float) -> Array:
    """Points along a curve, ends included, at distances of the local size."""
    s = np.linspace(0, 1, 2000)
    fine = curve(s)
    steps = np.linalg.norm(np.diff(fine, axis=0), axis=1) / (h * plate.size((fine[1:] + fine[:-1]) / 2))
    along = np.concatenate([[0], np.cumsum(steps)])
    # Two pieces at least, so that even the smallest arc is no straight line.
    return curve(np.interp(np.linspace(0, along[-1], max(2, math.ceil(along[-1])) + 1), along, s))


def _distinct(points: Array) -> Array:
    first = np.unique(np.round(points, 9), axis=0, return_index=True)[1]
    return points[np.sort(first)]


def _candidates(plate: Plate, h: float) -> Array:
    """Rings around the holes, ever wider and coarser, and rows of equilateral triangles for the rest."""
    rows = [_rows(plate, h)]
    for x, y, radius in plate.holes:
        distance, turn, farthest = 0.0, 0.0, math.dist(plate.low, plate.high)
        while (size := plate.near * math.sqrt(radius) + plate.slope * distance) < 1 and distance < farthest:
            distance += _ROW_HEIGHT * h * size
            count = math.ceil(2 * math.pi * (radius + distance) / (h * size))
            turn += 0.5 / count
            rows.append(_arc(x, y, radius + distance, 0, 2 * math.pi, np.arange(count) / count + turn))
    points = np.concatenate(rows)
    points = points[plate.inside(points, margin=_CLEARANCE * h * plate.size(points))]
    # The finest first: where rings of two holes meet, the coarser ones give way.
    return points[np.argsort(plate.size(points), kind="stable")]


def _rows(plate: Plate, h: float) -> Array:
    low, high = np.array(plate.low), np.array(plate.high)
    x, y = np.meshgrid(np.arange(low[0], high[0], h), np.arange(low[1], high[1], _ROW_HEIGHT * h))
    x[1::2] += h / 2
    return np.stack([x.ravel(), y.ravel()], axis=1)


def _thinned(plate: Plate, candidates: Array, boundary: Array, h: float) -> Array:
    """The candidates that keep their distance from the boundary's points and from all candidates before them."""
    clearance = _CLEARANCE * h * plate.size(candidates)
    far = KDTree(boundary).query(candidates)[0] > clearance
    candidates, clearance = candidates[far], clearance[far]
    kept = np.ones(len(candidates), dtype=bool)
    neighbours = KDTree(candidates).query_ball_point(candidates, clearance)
    for number, near in enumerate(neighbours):
        if any(kept[other] for other in near if other < number):
            kept[number] = False
    return candidates[kept]


def _triangles(plate: Plate, points: Array) -> Indices:
    """The Delaunay triangles (n, 3) within the plate."""
    triangles = Delaunay(points).simplices.astype(np.int64)
    corners = points[triangles]
    (ax, ay), (bx, by) = (corners[:, 1] - corners[:, 0]).T, (corners[:, 2] - corners[:, 0]).T
    # Points on a straight edge are in line up to rounding, which can make triangles of no height there.
    proper = np.abs(ax * by - ay * bx) > 1e-6 * (ax**2 + ay**2 + bx**2 + by**2)
    return triangles[proper & plate.inside(corners.mean(axis=1))]


def _smoothed(points: Array, triangles: Indices, fixed: int) -> Array:
    """Move every free point to the mean of its neighbours."""
    pairs = np.concatenate([triangles[:, [i, j]] for i, j in permutations(range(3), 2)])
    count = np.bincount(pairs[:, 0], minlength=len(points))
    middle = [np.bincount(pairs[:, 0], points[pairs[:, 1], axis], len(points)) / count for axis in (0, 1)]
    return np.concatenate([points[:fixed], np.stack(middle, axis=1)[fixed:]])


def _curved(plate: Plate, mesh: MeshTri2) -> MeshTri2:
    """The mesh with the middles of its edges along holes moved onto the circles."""
    places = mesh.doflocs.copy()
    for hole, facets in enumerate(hole_facets(plate, mesh)):
        center = np.array(plate.holes[hole][:2])[:, None]
        middles = mesh.dofs.get_facet_dofs(facets).flatten()
        arm = places[:, middles] - center
        places[:, middles] = center + plate.holes[hole][2] * arm / np.linalg.norm(arm, axis=0)
    return replace(mesh, doflocs=places)


def hole_facets(plate: Plate, mesh: MeshTri2) -> list[Indices]:
    """The boundary edges along each hole."""
    on_circle = np.abs(plate.from_holes(mesh.p.T)) < 1e-9 * max(plate.high)
    start, end = on_circle[boundary_ends(mesh)]
    return [mesh.boundary_facets()[along] for along in (start & end).T]


def outer_facets(plate: Plate, mesh: MeshTri2) -> Indices:
    """The boundary edges along the sides of the rectangle that are not on an axis of symmetry."""
    on_side = np.isclose(np.abs(mesh.p), np.array(plate.high)[:, None])
    start, end = boundary_ends(mesh)
    return mesh.boundary_facets()[(on_side[:, start] & on_side[:, end]).any(axis=0)]


def boundary_ends(mesh: MeshTri2) -> Indices:
    """The corners (2, n) at the ends of all boundary edges."""
    facets = mesh.facets
    assert facets is not None  # skfem makes them when a mesh is made
    return facets[:, mesh.boundary_facets()]


def nodes_of(mesh: MeshTri2) -> Nodes:
    """Return the nodes of a mesh, for interpolation without it."""
    return Nodes(mesh.doflocs.T.copy(), mesh.dofs.element_dofs.T.copy())
