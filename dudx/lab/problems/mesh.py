"""Domains from files: closed surfaces in space, and meshes in the plane or in space with named groups."""

from __future__ import annotations

import math
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from dudx.lab.problems.boundary_pieces import Piece
from dudx.lab.problems.geometry import Shape
from dudx.lab.problems.mesh_files import SURFACES, read_boundary
from dudx.lab.problems.shapes import distance_to_edges
from dudx.lab.problems.surfaces import Numbers, Surface

#: Pairs of points and triangles per pass, and cells per axis of the grid of known distances.
_PAIRS, _CELLS = 2**16, 16


class Mesh(Shape):
    """A domain read from a file; needs the extra `dudx[mesh]`.

    The names of boundary groups, such as gmsh's physical groups, select pieces of boundary: `Dirichlet(u=0.0,
    on="inlet")`. Cells of higher order count as straight.

    Args:
        file: a closed surface in space (`.stl`, `.obj`), or a mesh of triangles in the plane or of tetrahedra in space
            in any format that meshio reads, such as gmsh's `.msh`.
    """

    def __init__(self, file: str | Path):
        path = Path(file)
        corners, groups = read_boundary(path)
        self.name = path.name
        self.corners = torch.from_numpy(corners)  # (F, d, d)
        if path.suffix.lower() in SURFACES:
            volume = float(torch.linalg.det(self.corners - self.corners[0, 0]).sum() / 6)  # so that nothing cancels
            if volume < 0:
                self.corners = self.corners.flip(1)  # normals point out of the body
        kind = Edges if self.corners.shape[1] == 2 else Triangles
        self._surfaces = tuple(kind(self.name, self.corners[rows], group) for group, rows in groups.items())

    @property
    def groups(self) -> tuple[str, ...]:
        """The names of the groups of the boundary."""
        return tuple(surface.group for surface in self._surfaces if surface.group)

    @property
    def bounds(self) -> tuple[Numbers, Numbers]:
        return tuple(self.corners.amin(dim=(0, 1)).tolist()), tuple(self.corners.amax(dim=(0, 1)).tolist())

    @property
    def surfaces(self) -> tuple[Surface, ...]:
        return self._surfaces

    def _pieces(self) -> tuple[Piece, ...]:
        # Closed, with normals that point out.
        return tuple(Piece(surface, self, number, 1.0, 1.0) for number, surface in enumerate(self._surfaces))

    def _distance(self, x: Tensor) -> Tensor:
        """Signed distance: exact near the surface, a lower bound of its size from the grid far away."""
        if self.dimension == 2:
            return self._exact(x.double().cpu()).to(x)
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
        if self.dimension == 2:
            start, end = self.corners.unbind(1)
            return torch.cat([distance_to_edges(part, start, end - start) for part in x.split(rows)])
        return torch.cat([_signed(part, self.corners) for part in x.split(rows)])

    def __repr__(self) -> str:
        return f"Mesh({self.name!r})"


class _Facets:
    """A group of facets as one piece of the boundary, with their normals and sizes."""

    def __init__(self, name: str, corners: Tensor, group: str, across: Tensor, per_length: float):
        self.name, self.corners, self.group = name, corners, group
        lengths = across.norm(dim=1)
        self.normals, self.sizes = across / lengths[:, None], lengths / per_length
        self.below = torch.cumsum(self.sizes, 0) / self.sizes.sum()

    @property
    def measure(self) -> float:
        return float(self.sizes.sum())

    def touches(self, points: Tensor, normals: Tensor, within: float) -> Tensor:
        return torch.zeros(len(points), dtype=torch.bool, device=points.device)  # groups share no facets

    def __repr__(self) -> str:
        return f"the surface of {self.name}" if not self.group else f"{self.group!r} of {self.name}"


class Edges(_Facets):
    """Edges in the plane."""

    def __init__(self, name: str, corners: Tensor, group: str = ""):
        along = corners[:, 1] - corners[:, 0]
        super().__init__(name, corners, group, torch.stack([along[:, 1], -along[:, 0]], dim=1), 1.0)

    def located(self, unit: Tensor) -> tuple[Tensor, Tensor]:
        at = unit[:, 0].double().cpu().contiguous()
        chosen = torch.searchsorted(self.below, at).clamp(max=len(self.sizes) - 1)
        before = torch.cat([self.below.new_zeros(1), self.below])[chosen]
        share = ((at - before) / (self.below[chosen] - before)).clamp(0, 1)[:, None]
        start, end = self.corners[chosen].unbind(1)
        return (start + share * (end - start)).to(unit), self.normals[chosen].to(unit)


class Triangles(_Facets):
    """Triangles in space."""

    def __init__(self, name: str, corners: Tensor, group: str = ""):
        across = torch.linalg.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
        super().__init__(name, corners, group, across, 2.0)

    def located(self, unit: Tensor) -> tuple[Tensor, Tensor]:
        chosen = torch.searchsorted(self.below, unit[:, 0].double().cpu().contiguous()).clamp(max=len(self.sizes) - 1)
        a, b, c = (self.corners[chosen, i].to(unit) for i in range(3))
        root, share = unit[:, 1:2].sqrt(), unit[:, 2:3]  # uniform over a triangle
        return a * (1 - root) + b * root * (1 - share) + c * root * share, self.normals[chosen].to(unit)


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
