"""Laplace's equation on a square with four round holes: u = 1 on the square's edge, u = 0 on the circles.

The square is symmetric in both axes, so a quarter of it is solved, with no flux across the axes. The shipped solution
is within 1e-5 (relative L2) of one on a mesh of half the size.
"""

from __future__ import annotations

import numpy as np
import torch
from skfem import Basis, ElementTriP2, condense
from skfem import solve as solve_linear
from skfem.models.poisson import laplace

from dudx.lab.problems.references.nodal import Nodes
from dudx.lab.problems.references.reference_solution import Array
from reproduction.references.meshes import Plate, hole_facets, nodes_of, outer_facets, triangulated
from reproduction.references.refinement import Refinement, refinement_rows

QUARTER = Plate(low=(0.0, 0.0), high=(0.5, 0.5), holes=((0.3, 0.3, 0.1),), near=0.95, slope=3.0)
SHIPPED_SIZE = 0.02
SIZES = (0.08, 0.06, 0.04, 0.03, SHIPPED_SIZE, SHIPPED_SIZE / 2)


def solve(plate: Plate, h: float) -> tuple[Nodes, Array]:
    """The nodes of a mesh of size h, and the solution there."""
    mesh = triangulated(plate, h)
    basis = Basis(mesh, ElementTriP2())
    on_circles = basis.get_dofs(np.concatenate(hole_facets(plate, mesh))).flatten()
    on_square = basis.get_dofs(outer_facets(plate, mesh)).flatten()
    values = basis.zeros()
    values[on_square] = 1
    fixed = np.concatenate([on_circles, on_square])
    solution = solve_linear(*condense(laplace.assemble(basis), x=values, D=fixed))
    return nodes_of(mesh), np.asarray(solution)


def build() -> dict[str, np.ndarray]:
    """Solve on the mesh that is shipped."""
    nodes, values = solve(QUARTER, SHIPPED_SIZE)
    return {**nodes.arrays(), "values": values}


def refinements(sizes: tuple[float, ...] = SIZES) -> list[Refinement]:
    """Solve on ever finer meshes, one finer than the one that is shipped, and compare at points spread evenly."""
    points = QUARTER.domain.sobol(2**13, dtype=torch.float64).numpy()
    solved = [solve(QUARTER, h) for h in sizes]
    solutions = [nodes.interpolated(values, points) for nodes, values in solved]
    return refinement_rows(sizes, [len(values) for _, values in solved], solutions, dimension=2)
