"""Quadratic finite elements, refined towards the corner, and Crank-Nicolson steps."""

import numpy as np
from scipy.sparse.linalg import splu
from skfem import Basis, BilinearForm, ElementTriP2, LinearForm, MeshTri
from skfem.helpers import dot, grad

#: Uniform refinements of six triangles, further ones at the corner, and steps in time.
_UNIFORM, _CORNER, _STEPS = 4, 10, 320
_MOMENTS = (0.25, 0.5, 0.75, 1.0)


def source(x, y, t):
    angle = np.pi * (1.4 * t - 0.2)
    return 10 * np.exp(-((x - 0.5 * np.cos(angle)) ** 2 + (y - 0.5 * np.sin(angle)) ** 2) / 0.08)


def temperatures(uniform, corner, steps):
    """Return points (N, 3) and temperatures (N,) at some moments."""
    library = MeshTri.init_lshaped()  # lacks the quadrant x > 0, y > 0; the plate is its mirror image
    mesh = MeshTri(library.p * [[1.0], [-1.0]], library.t).refined(uniform)
    for _ in range(corner):
        near = np.linalg.norm(mesh.p[:, mesh.t].mean(axis=1), axis=0)
        sizes = np.linalg.norm(mesh.p[:, mesh.t[0]] - mesh.p[:, mesh.t[1]], axis=0)
        mesh = mesh.refined(np.flatnonzero(near < 1.5 * sizes))
    basis = Basis(mesh, ElementTriP2(), intorder=4)
    mass = BilinearForm(lambda u, v, _: u * v).assemble(basis)
    stiffness = BilinearForm(lambda u, v, _: 0.2 * dot(grad(u), grad(v))).assemble(basis)
    free = basis.complement_dofs(basis.get_dofs())
    step = 1 / steps
    solver = splu((mass + step / 2 * stiffness)[free][:, free].tocsc())
    explicit = (mass - step / 2 * stiffness)[free][:, free]

    def load(t):
        return LinearForm(lambda v, w: source(w.x[0], w.x[1], t) * v).assemble(basis)[free]

    u, before, points, values = np.zeros(len(free)), load(0.0), [], []
    x, y = basis.doflocs[:, free]
    for number in range(1, steps + 1):
        after = load(number * step)
        u, before = solver.solve(explicit @ u + step / 2 * (before + after)), after
        if any(abs(number * step - moment) < 1e-9 for moment in _MOMENTS):
            points.append(np.stack([x, y, np.full_like(x, number * step)], axis=1))
            values.append(u)
    return np.concatenate(points), np.concatenate(values)


def reference():
    return temperatures(_UNIFORM, _CORNER, _STEPS)
