"""A body in space from a file of triangles, STL or OBJ."""

from __future__ import annotations

import math
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from dudx.errors import InputError
from dudx.lab.files import read_bytes
from dudx.lab.problems.boundary_pieces import Piece
from dudx.lab.problems.geometry import Shape
from dudx.lab.problems.surfaces import Numbers, Surface

#: Pairs of points and triangles that are looked at together, and cells along each axis of the grid that tells most
#: points' side without a look at the triangles.
_PAIRS, _CELLS = 2**16, 16


class Mesh(Shape):
    """The inside of a closed surface of triangles.

    Args:
        file: an STL file, binary or text, or an OBJ file whose faces are flat polygons.
    """

    def __init__(self, file: str | Path):
        path = Path(file)
        content = read_bytes(path)
        reader = {".stl": _stl, ".obj": _obj}.get(path.suffix.lower())
        if reader is None:
            raise InputError(f"A body is read from an .stl or .obj file; got {path.name!r}.")
        try:
            corners = np.asarray(reader(content), dtype=np.float64)
        except (ValueError, IndexError, UnicodeDecodeError) as error:
            raise InputError(f"{str(path)!r} cannot be read as {path.suffix}: {error}.") from error
        if corners.ndim != 3 or corners.shape[1:] != (3, 3) or len(corners) < 4 or not np.isfinite(corners).all():
            raise InputError(f"{str(path)!r} holds no body: four triangles of finite corners are the least.")
        self.name = path.name
        areas = np.linalg.norm(np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]), axis=1)
        self.corners = torch.from_numpy(corners[areas > 0])  # (F, 3, 3)
        volume = float(torch.linalg.det(self.corners).sum() / 6)
        if volume < 0:
            self.corners = self.corners.flip(1)  # normals are to point out
        self._refuse_open(path)

    def _refuse_open(self, path: Path) -> None:
        """Each edge belongs to two triangles that run along it in opposite directions."""
        low, high = self.corners.amin(dim=(0, 1)), self.corners.amax(dim=(0, 1))
        places = ((self.corners - low) / (high - low).max() * 2**20).round().long()
        codes = (places[..., 0] << 42) + (places[..., 1] << 21) + places[..., 2]
        edges = {}
        for a, b in ((0, 1), (1, 2), (2, 0)):
            for pair in zip(codes[:, a].tolist(), codes[:, b].tolist(), strict=True):
                edges[pair] = edges.get(pair, 0) + 1
        if any(edges.get((b, a), 0) != count for (a, b), count in edges.items()):
            raise InputError(f"The surface in {str(path)!r} is not closed, so that it has no inside.")

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
        """Exact near the surface; far from it at least as much as what is known from the grid."""
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
        """The corner and the size of a grid's cells, and in each a bound of the distance; 0 where there is none."""
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


class Triangles:
    """The surface of a body, all of it one piece."""

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
        root, share = unit[:, 1:2].sqrt(), unit[:, 2:3]  # even over a triangle
        return a * (1 - root) + b * root * (1 - share) + c * root * share, self.normals[chosen].to(unit)

    def touches(self, points: Tensor, normals: Tensor, within: float) -> Tensor:
        return torch.zeros(len(points), dtype=torch.bool, device=points.device)  # of one body there is nothing else

    def __repr__(self) -> str:
        return f"the surface of {self.name}"


def _signed(x: Tensor, corners: Tensor) -> Tensor:
    """The distance to the nearest triangle, negative where all triangles together surround a point."""
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
    """From a point right above or below a triangle; infinite for others."""
    normal = torch.linalg.cross(b - a, c - a)
    sides = [(torch.linalg.cross(end - start, -start) * normal).sum(2) for start, end in ((a, b), (b, c), (c, a))]
    above = torch.stack(sides).amin(dim=0) >= 0
    height = ((a * normal).sum(2) / normal.norm(dim=2)).abs()
    return torch.where(above, height, torch.inf)


def _stl(content: bytes) -> np.ndarray:
    count = int.from_bytes(content[80:84], "little")
    if len(content) == 84 + 50 * count:
        rows = np.frombuffer(content, np.dtype([("numbers", "<f4", (12,)), ("more", "<u2")]), count, 84)
        return rows["numbers"][:, 3:].reshape(-1, 3, 3)
    lines = content.decode("ascii").split("\n")
    if not lines[0].lstrip().startswith("solid"):
        raise ValueError("it is neither text nor as long as its number of triangles says")
    corners = [[float(word) for word in line.split()[1:4]] for line in lines if line.lstrip().startswith("vertex")]
    return np.array(corners).reshape(-1, 3, 3)


def _obj(content: bytes) -> np.ndarray:
    corners: list[list[float]] = []
    triangles = []
    for line in content.decode("utf-8").splitlines():
        word, *numbers = line.split() or [""]
        if word == "v":
            corners.append([float(number) for number in numbers[:3]])
        elif word == "f":
            at = [int(number.split("/")[0]) for number in numbers]
            at = [place - 1 if place > 0 else len(corners) + place for place in at]
            triangles += [[corners[at[0]], corners[at[i]], corners[at[i + 1]]] for i in range(1, len(at) - 1)]
    return np.array(triangles)
