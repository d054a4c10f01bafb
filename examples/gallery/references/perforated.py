"""Finite elements with quadratic quadrilaterals that follow the hole, on rays from its center."""

import numpy as np
from skfem import (
    Basis,
    BilinearForm,
    ElementQuad2,
    ElementVector,
    FacetBasis,
    LinearForm,
    MeshQuad,
    MeshQuad2,
    condense,
    solve,
)
from skfem.helpers import ddot, eye, sym_grad, trace

RADIUS, PULL = 0.3, 0.1
SHEAR, DILATION = 1 / 2.6, 0.3 / (1 - 0.3**2)
#: Elements along a ray; as many per eighth of the circle.
_ELEMENTS = 64


def placed(s, angle):
    """Return the points (2, …) at the share s of the rays from the hole to the edge of the square."""
    direction = np.stack([np.cos(angle), np.sin(angle)])
    return (RADIUS + s * (1 / direction.max(axis=0) - RADIUS)) * direction


def displacements(elements):
    """Return nodes (N, 2) and displacements (N, 2)."""
    # The corner of the square is on the ray between two elements, on whose sides the map is smooth.
    grid = MeshQuad.init_tensor(np.linspace(0, 1, elements + 1), np.linspace(0, np.pi / 2, 2 * elements + 1))
    straight = MeshQuad2.from_mesh(grid)
    mesh = MeshQuad2(placed(*straight.doflocs), straight.t)
    basis = Basis(mesh, ElementVector(ElementQuad2()), intorder=5)
    right = mesh.facets_satisfying(lambda x: np.abs(x[0] - 1) < 1e-9, boundaries_only=True)
    edge = FacetBasis(mesh, basis.elem, facets=right, intorder=5)

    @BilinearForm
    def stiffness(u, v, _):
        strain = sym_grad(u)
        return ddot(2 * SHEAR * strain + DILATION * eye(trace(strain), 2), sym_grad(v))

    @LinearForm
    def force(v, _):
        return PULL * v[0]

    left = basis.get_dofs(lambda x: np.abs(x[0]) < 1e-9).all(["u^1"])
    bottom = basis.get_dofs(lambda x: np.abs(x[1]) < 1e-9).all(["u^2"])
    fixed = np.concatenate([left, bottom])
    found = solve(*condense(stiffness.assemble(basis), force.assemble(edge), D=fixed))
    u, v = (
        np.concatenate([kind[component] for kind in (basis.nodal_dofs, basis.facet_dofs, basis.interior_dofs)])
        for component in (0, 1)
    )
    return basis.doflocs[:, u].T, np.stack([found[u], found[v]], axis=1)


def reference():
    return displacements(_ELEMENTS)
