"""Read the boundary of a body or of a plane shape from files of meshes."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dudx.errors import InputError, first_line
from dudx.lab.atomic_files import read_bytes

#: Formats of closed surfaces, which trimesh reads; meshes of the inside are read by meshio.
SURFACES = (".stl", ".obj")
#: Dimension and corners of the simplices of cells, by their names without the order.
_CELLS: dict[str, tuple[int, list[tuple[int, ...]]]] = {
    "line": (1, [(0, 1)]),
    "triangle": (2, [(0, 1, 2)]),
    "quad": (2, [(0, 1, 2), (0, 2, 3)]),
    "tetra": (3, [(0, 1, 2, 3)]),
}


class Boundary(NamedTuple):
    """Facets of a boundary, (F, d, d), whose normals point out, and for each group its name and rows."""

    corners: np.ndarray
    groups: dict[str, np.ndarray]


def read_boundary(path: Path) -> Boundary:
    """Read the boundary of the inside that a file describes, with its named groups."""
    if path.suffix.lower() in SURFACES:
        corners = _triangles_in(path)
        areas = np.linalg.norm(np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]), axis=1)
        corners = corners[areas > 0]
        return Boundary(corners, {"": np.arange(len(corners))})
    mesh = read_mesh(path)
    points, cells = flat(np.asarray(mesh.points, dtype=np.float64)), _simplices(mesh)
    if not np.isfinite(points).all():
        raise InputError(f"{str(path)!r} holds corners that are not finite.")
    dimension = points.shape[1]
    inside = [simplex for simplex, _ in cells.get(dimension, [])]
    if dimension not in (2, 3) or not inside:
        raise InputError(
            f"{str(path)!r} holds no triangles or quadrilaterals in the plane, nor tetrahedra in space, to take as the "
            "domain."
        )
    facets = _outer_facets(points, np.concatenate(inside))
    number = {tuple(sorted(facet)): row for row, facet in enumerate(facets.tolist())}
    groups: dict[str, list[int]] = {}
    for simplex, names in cells.get(dimension - 1, []):
        for facet, name in zip(simplex.tolist(), names, strict=True):
            row = number.get(tuple(sorted(facet)))
            if row is not None and name:
                groups.setdefault(name, []).append(row)
    found = {name: np.unique(rows) for name, rows in groups.items()}
    rest = np.setdiff1d(np.arange(len(facets)), np.concatenate([*found.values(), np.zeros(0, dtype=int)]))
    return Boundary(points[facets], {**found, "": rest} if len(rest) else found)


def read_mesh(path: Path) -> Any:
    """Read a mesh by meshio."""
    content = read_bytes(path)  # a missing file and a changed one are told apart here
    try:
        import meshio
    except ImportError as error:
        raise InputError("meshio is not installed, which reads meshes: pip install 'dudx[mesh]'.") from error
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            return meshio.read(path)
    except (Exception, SystemExit) as error:  # meshio lets through whatever a damaged file causes
        why = first_line(error) if isinstance(error, Exception) and str(error) else f"{len(content)} bytes of no format"
        raise InputError(f"{str(path)!r} cannot be read by meshio: {why}.") from error


def flat(points: np.ndarray) -> np.ndarray:
    """Drop a third coordinate that is the same everywhere."""
    return points[:, :2] if points.shape[1] == 3 and np.ptp(points[:, 2]) == 0 else points


def _simplices(mesh: Any) -> dict[int, list[tuple[np.ndarray, list[str]]]]:
    """Return simplices by dimension, with the name of the group of each; those of higher order by their corners."""
    names = {(int(dimension), int(tag)): name for name, (tag, dimension) in mesh.field_data.items()}
    physical = mesh.cell_data.get("gmsh:physical")
    found: dict[int, list[tuple[np.ndarray, list[str]]]] = {}
    for block, cells in enumerate(mesh.cells):
        kind = cells.type.rstrip("0123456789")
        if kind not in _CELLS:
            continue
        dimension, parts = _CELLS[kind]
        labels = [""] * len(cells.data)
        if physical is not None:
            labels = [names.get((dimension, int(tag)), "") for tag in physical[block]]
        for name, sets in mesh.cell_sets.items():
            rows = sets[block] if name not in names.values() and not name.startswith("gmsh:") else None
            for row in () if rows is None else rows:
                labels[row] = name
        for corners in parts:
            found.setdefault(dimension, []).append((np.asarray(cells.data)[:, list(corners)], labels))
    return found


def _outer_facets(points: np.ndarray, cells: np.ndarray) -> np.ndarray:
    """Return the facets that belong to one simplex only, with corners in the order whose normal points out."""
    d = points.shape[1]
    every = np.concatenate([np.delete(cells, i, axis=1) for i in range(d + 1)])
    opposite = np.concatenate([cells[:, i] for i in range(d + 1)])
    _, first, count = np.unique(np.sort(every, axis=1), axis=0, return_index=True, return_counts=True)
    rows = first[count == 1]
    facets, inner = every[rows].copy(), points[opposite[rows]]
    along = points[facets[:, 1:]] - points[facets[:, :1]]
    # In the plane the normal points to the right of an edge, in space it is the cross product.
    normal = np.stack([along[:, 0, 1], -along[:, 0, 0]], axis=1) if d == 2 else np.cross(along[:, 0], along[:, 1])
    wrong = ((inner - points[facets[:, 0]]) * normal).sum(axis=1) > 0
    facets[wrong] = facets[wrong][:, [1, 0, *range(2, d)]]
    return facets


def _triangles_in(path: Path) -> np.ndarray:
    """Read the corners (F, 3, 3) of a closed surface."""
    content = read_bytes(path)
    try:
        import trimesh
    except ImportError as error:
        raise InputError("trimesh is not installed, which reads bodies: pip install 'dudx[mesh]'.") from error
    suffix = path.suffix.lower().removeprefix(".")
    try:
        surface = trimesh.load_mesh(io.BytesIO(content), file_type=suffix, process=False)
        corners = np.array(surface.triangles, dtype=np.float64)
    except Exception as error:  # trimesh lets through whatever a damaged file causes
        raise InputError(f"{str(path)!r} cannot be read as .{suffix}: {first_line(error)}.") from error
    if len(corners) < 4:
        raise InputError(
            f"{str(path)!r} cannot be read as .{suffix}: found {len(corners)} triangles, expected 4 or more."
        )
    if not np.isfinite(corners).all():
        raise InputError(f"{str(path)!r} holds corners that are not finite.")
    surface.apply_scale(1 / np.ptp(corners.reshape(-1, 3), axis=0).max())  # so that digits are relative to its size
    surface.merge_vertices(merge_tex=True, merge_norm=True, digits_vertex=6)
    # Each edge belongs to triangles that run along it in opposite directions.
    along, against = (np.unique(edges, axis=0, return_counts=True) for edges in (surface.edges, surface.edges[:, ::-1]))
    if not all(map(np.array_equal, along, against)):
        raise InputError(f"The surface in {str(path)!r} is not closed, so it has no inside.")
    return corners
