"""Heat in a plate with 17 round holes that warm it: u_t = Δu, u = 0 at first, ∂u/∂n = g − u on every boundary.

The plate is symmetric in both axes, so a quarter of it is solved, with no flux across the axes. Steps in time are
TR-BDF2 (second order, damps stiff parts fully). They start short: at t = 0 the plate is cold and the flux is not, so u
grows like √t at the boundary. For the same reason snapshots are interpolated in √t.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import torch
from scipy.sparse import csc_matrix
from scipy.sparse.linalg import splu
from skfem import Basis, ElementTriP2, FacetBasis, MeshTri2
from skfem.models.poisson import laplace, mass, unit_load

from dudx.lab.problems.references.heat_reference import BIG, SCORED_TIMES, SMALL
from dudx.lab.problems.references.nodal import Nodes
from dudx.lab.problems.references.reference_solution import Array
from reproduction.references.meshes import Plate, hole_facets, nodes_of, outer_facets, triangulated
from reproduction.references.refinement import Refinement, refinement_rows

QUARTER = Plate(
    low=(0.0, 0.0),
    high=(8.0, 12.0),
    holes=((0, 0, BIG), (0, 6, BIG), (4, 3, BIG), (4, 9, BIG), (3.2, 0, SMALL), (3.2, 6, SMALL)),
    near=0.3,
    slope=0.2,
)
HOLE_SOURCES = {BIG: 5.0, SMALL: 1.0}
OUTER_SOURCE = 0.1
# The steps (size, number): they double whenever the time has doubled, until t = 0.1.
LONGEST = 0.0125
STEPS = ((LONGEST / 64, 16), *((LONGEST / 2**k, 8) for k in range(5, 0, -1)), (LONGEST, 232))
# Between the first scored times snapshots are needed too, down to a time at which the mesh resolves nothing yet.
EARLY_TIMES = [*(LONGEST / 64 * np.array([2, 4, 8, 12])), *np.outer(0.003125 * 2.0 ** np.arange(5), [1, 1.5]).flat]
SNAPSHOTS = np.sort([*SCORED_TIMES, *EARLY_TIMES, 0.15, 0.25])
SHIPPED_SIZE = 0.45
SIZES = (1.2, 0.9, 0.6, SHIPPED_SIZE, SHIPPED_SIZE / 2)


def solve(plate: Plate, h: float) -> tuple[Nodes, Array]:
    """The nodes of a mesh of size h, and the solution (times, n) there at the times of `SNAPSHOTS`."""
    mesh = triangulated(plate, h)
    found = [u for t, u in _marched(*_system(plate, mesh)) if np.isclose(SNAPSHOTS, t, rtol=0, atol=1e-9).any()]
    return nodes_of(mesh), np.stack(found)


def _system(plate: Plate, mesh: MeshTri2) -> tuple[csc_matrix, csc_matrix, Array]:
    """The matrices M, K and the vector f of M u' = f − K u, where K holds the boundary's u and f its g."""
    basis = Basis(mesh, ElementTriP2())
    stiffness, load = laplace.assemble(basis), basis.zeros()
    sources = [HOLE_SOURCES[radius] for *_, radius in plate.holes]
    for facets, source in zip(
        [*hole_facets(plate, mesh), outer_facets(plate, mesh)], [*sources, OUTER_SOURCE], strict=True
    ):
        edge = FacetBasis(mesh, ElementTriP2(), facets=facets)
        stiffness += mass.assemble(edge)
        load += source * unit_load.assemble(edge)
    return csc_matrix(mass.assemble(basis)), csc_matrix(stiffness), load


def _marched(mass_matrix: csc_matrix, stiffness: csc_matrix, load: Array) -> Iterator[tuple[float, Array]]:
    """Every time and the solution then, by TR-BDF2 with the fraction that gives both stages the same matrix."""
    fraction = 2 - math.sqrt(2)
    t, u = 0.0, np.zeros(len(load))
    yield t, u
    for step, count in STEPS:
        weight = fraction / 2 * step
        factors = splu(csc_matrix(mass_matrix + weight * stiffness))
        for _ in range(count):
            middle = factors.solve(mass_matrix @ u - weight * (stiffness @ u) + 2 * weight * load)
            blend = (middle - (1 - fraction) ** 2 * u) / (fraction * (2 - fraction))
            t, u = t + step, factors.solve(mass_matrix @ blend + weight * load)
            yield t, u


def build() -> dict[str, np.ndarray]:
    """Solve on the mesh that is shipped; single precision halves the file and is far below the error."""
    nodes, values = solve(QUARTER, SHIPPED_SIZE)
    return {**nodes.arrays(), "times": SNAPSHOTS, "values": values.astype(np.float32)}


def refinements(sizes: tuple[float, ...] = SIZES) -> list[Refinement]:
    """Solve on ever finer meshes, one finer than the one that is shipped, and compare at points spread evenly."""
    points = QUARTER.domain.sobol(2**12, dtype=torch.float64).numpy()
    solved = [solve(QUARTER, h) for h in sizes]
    scored = np.isclose(SNAPSHOTS[:, None], SCORED_TIMES).any(axis=1)
    solutions = [np.stack([nodes.interpolated(u, points) for u in values[scored]]) for nodes, values in solved]
    return refinement_rows(sizes, [len(nodes.places) for nodes, _ in solved], solutions, dimension=2)
