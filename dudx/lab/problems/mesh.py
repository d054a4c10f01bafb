"""A body in space, read from an STL or OBJ file of triangles."""

from __future__ import annotations

import io
import math
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from dudx.errors import InputError, first_line
from dudx.lab.atomic_files import read_bytes
from dudx.lab.problems.boundary_pieces import Piece
from dudx.lab.problems.geometry import Shape
from dudx.lab.problems.surfaces import Numbers, Surface

#: Pairs of points and triangles per pass, and cells per axis of the grid of known distances.
_PAIRS, _CELLS = 2**16, 16


class Mesh(Shape):
    """The inside of a closed surface of triangles. Needs trimesh.

    Args:
        file: an STL file, binary or text, or an OBJ file whose faces are flat polygons.
    """

    def __init__(self, file: str | Path):
        path = Path(file)
        if path.suffix.lower() not in (".stl", ".obj"):
            raise InputError(f"A body is read from an .stl or .obj file; got {path.name!r}.")
        corners = _triangles_in(path)
        self.name = path.name
        areas = np.linalg.norm(np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]), axis=1)
        self.corners = torch.from_numpy(corners[areas > 0])  # (F, 3, 3)
        volume = float(torch.linalg.det(self.corners - self.corners[0, 0]).sum() / 6)  # so that nothing cancels
        if volume < 0:
            self.corners = self.corners.flip(1)  # normals point out of the body

    @property
    def bounds(self) -> tuple[Numbers, Numbers]:
        return tuple(self.corners.amin(dim=(0, 1)).tolist()), tuple(self.corners.amax(dim=(0, 1)).tolist())

    @cached_property
    def _surface(self) -> Triangles:
        return Triangles(self.name, self.corners)

    @property
    def surfaces(self) -> tuple[Surface, ...]:
        return (self._surface,)

    def _pieces(self) -> tuple[Piece, ...]:
        return (Piece(self._surface, self, 0, 1.0, 1.0),)  # closed, with normals that point out

    def _distance(self, x: Tensor) -> Tensor:
        """Signed distance: exact near the surface, a lower bound of its size from the grid far away."""
        low, size, known = self._cells
        cell = ((x.double().cpu() - low) / size).floor().long()
        beyond = ((cell < 0) | (cell >= _CELLS)).any(dim=1)
        place = cell.clamp(0, _CELLS - 1)
        found = known[place[:, 0], place[:, 1], place[:, 2]].clone()
        near = beyond | (found == 0)
        if bool(near.any()):
            found[near] = self._exact(x.double().cpu()[near])
        return found.to(x)

    @cached_property
    def _cells(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return a grid's lower corner, its cell size, and per cell a bound of the distance (0 if unknown)."""
        low, high = (torch.tensor(corner, dtype=torch.float64) for corner in self.bounds)
        size = (high - low) / _CELLS
        axes = [low[i] + size[i] * (torch.arange(_CELLS) + 0.5) for i in range(3)]
        middle = self._exact(torch.cartesian_prod(*axes))
        reach = float(size.norm()) / 2
        known = torch.where(middle.abs() > reach, middle - reach * middle.sign(), 0.0)
        return low, size, known.reshape(_CELLS, _CELLS, _CELLS)

    def _exact(self, x: Tensor) -> Tensor:
        rows = max(1, _PAIRS // len(self.corners))
        return torch.cat([_signed(part, self.corners) for part in x.split(rows)])

    def __repr__(self) -> str:
        return f"Mesh({self.name!r})"


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


class Triangles:
    """The surface of a body as one piece of the boundary."""

    def __init__(self, name: str, corners: Tensor):
        self.name, self.corners = name, corners
        across = torch.linalg.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
        lengths = across.norm(dim=1)
        self.normals, self.areas = across / lengths[:, None], lengths / 2
        self.below = torch.cumsum(self.areas, 0) / self.areas.sum()

    @property
    def measure(self) -> float:
        return float(self.areas.sum())

    def located(self, unit: Tensor) -> tuple[Tensor, Tensor]:
        chosen = torch.searchsorted(self.below, unit[:, 0].double().cpu()).clamp(max=len(self.areas) - 1)
        a, b, c = (self.corners[chosen, i].to(unit) for i in range(3))
        root, share = unit[:, 1:2].sqrt(), unit[:, 2:3]  # uniform over a triangle
        return a * (1 - root) + b * root * (1 - share) + c * root * share, self.normals[chosen].to(unit)

    def touches(self, points: Tensor, normals: Tensor, within: float) -> Tensor:
        return torch.zeros(len(points), dtype=torch.bool, device=points.device)  # a body has one surface

    def __repr__(self) -> str:
        return f"the surface of {self.name}"


def _signed(x: Tensor, corners: Tensor) -> Tensor:
    """Return the distance to the nearest triangle, negative where the triangles surround the point."""
    a, b, c = (corners[:, i] - x[:, None] for i in range(3))  # (N, F, 3)
    la, lb, lc = a.norm(dim=2), b.norm(dim=2), c.norm(dim=2)
    # The solid angle of each triangle (van Oosterom and Strackee, 1983).
    over = (a * torch.linalg.cross(b, c)).sum(dim=2)
    under = la * lb * lc + (a * b).sum(2) * lc + (b * c).sum(2) * la + (c * a).sum(2) * lb
    inside = 2 * torch.atan2(over, under).sum(dim=1) > 2 * math.pi
    distance = torch.minimum(_to_edges(a, b, c), _to_planes(a, b, c)).amin(dim=1)
    return torch.where(inside, -distance, distance)


def _to_edges(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    found = []
    for start, end in ((a, b), (b, c), (c, a)):
        along = end - start
        share = (-(start * along).sum(2) / (along * along).sum(2)).clamp(0, 1)
        found.append((start + share[..., None] * along).norm(dim=2))
    return torch.stack(found).amin(dim=0)


def _to_planes(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """Return the distance to each triangle's plane where the point projects into the triangle, else infinity."""
    normal = torch.linalg.cross(b - a, c - a)
    sides = [(torch.linalg.cross(end - start, -start) * normal).sum(2) for start, end in ((a, b), (b, c), (c, a))]
    above = torch.stack(sides).amin(dim=0) >= 0
    height = ((a * normal).sum(2) / normal.norm(dim=2)).abs()
    return torch.where(above, height, torch.inf)
