"""Re-entrant corners of plane domains, found by looking around the ends and crossings of straight edges."""

from __future__ import annotations

import math
from itertools import combinations
from typing import NamedTuple

import torch
from torch import Tensor

from dudx.lab.problems.geometry import Cylinder, Domain, Shape
from dudx.lab.problems.mesh import Mesh
from dudx.lab.problems.surfaces import Face, Segment, Surface
from dudx.lab.problems.transformed import TransformedSurface

#: The radius of the circle around a corner, relative to the domain; the number of directions looked at.
_RADIUS, _DIRECTIONS = 1e-5, 720
#: Domains with more straight edges are taken to be curved; corners must exceed a straight angle by this.
_MOST_EDGES, _LEAST = 64, 0.02


class Corner(NamedTuple):
    """A corner (x, y), the direction of its bisector into the domain, and its inner angle in radians."""

    place: tuple[float, float]
    bisector: tuple[float, float]
    angle: float


def re_entrant_corners(domain: Domain) -> list[Corner]:
    """Return the corners with an inner angle above π of a domain in the plane, or in the plane and time."""
    shape = domain.space if isinstance(domain, Cylinder) else domain
    if not isinstance(shape, Shape) or shape.dimension != 2 or isinstance(shape, Mesh):
        return []
    edges = [_ends(surface) for surface in shape.surfaces if _straight(surface)]
    if len(edges) > _MOST_EDGES:
        return []
    points = [end for edge in edges for end in edge]
    points += [cross for a, b in combinations(edges, 2) if (cross := _crossing(a, b)) is not None]
    size = max(b - a for a, b in zip(*shape.bounds, strict=True))
    found: dict[tuple[int, int], Corner] = {}
    for point in points:
        x, y = point.tolist()
        key = round(x / (_RADIUS * size)), round(y / (_RADIUS * size))
        if key not in found and (corner := _corner(shape, point, _RADIUS * size)) is not None:
            found[key] = corner
    return list(found.values())


def _straight(surface: Surface) -> bool:
    return isinstance(surface.surface if isinstance(surface, TransformedSurface) else surface, Face | Segment)


def _ends(surface: Surface) -> Tensor:
    """Return the two ends (2, 2) of a straight edge."""
    return surface.located(torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64))[0]


def _crossing(a: Tensor, b: Tensor) -> Tensor | None:
    """Return the point at which two edges cross, if they do."""
    along, other, between = a[1] - a[0], b[1] - b[0], b[0] - a[0]
    area = along[0] * other[1] - along[1] * other[0]
    if float(area.abs()) <= 1e-12 * float(along.norm() * other.norm()):
        return None
    s = (between[0] * other[1] - between[1] * other[0]) / area
    t = (between[0] * along[1] - between[1] * along[0]) / area
    return a[0] + s * along if 0 <= float(s) <= 1 and 0 <= float(t) <= 1 else None


def _corner(shape: Shape, point: Tensor, radius: float) -> Corner | None:
    """Return the corner at a point, if the domain around it is one sector with an angle above π."""
    angles = (torch.arange(_DIRECTIONS, dtype=torch.float64) + 0.5) * (2 * math.pi / _DIRECTIONS)
    inside = _inside(shape, point, radius, angles)
    enters = (inside & ~inside.roll(1)).nonzero().flatten().tolist()
    if len(enters) != 1 or float(inside.double().mean()) * 2 * math.pi <= math.pi + _LEAST:
        return None
    count = int(inside.sum())
    first = _edge(shape, point, radius, float(angles[enters[0] - 1]), float(angles[enters[0]]))
    last = (enters[0] + count) % _DIRECTIONS
    end = _edge(shape, point, radius, float(angles[last]), float(angles[last - 1]))
    angle = (end - first) % (2 * math.pi)
    middle = first + angle / 2
    x, y = point.tolist()
    return Corner((x, y), (math.cos(middle), math.sin(middle)), angle)


def _inside(shape: Shape, point: Tensor, radius: float, angles: Tensor) -> Tensor:
    return shape.contains(point + radius * torch.stack([angles.cos(), angles.sin()], dim=1))


def _edge(shape: Shape, point: Tensor, radius: float, outside: float, inside: float) -> float:
    """Return the angle of an edge between a direction outside of the domain and one inside, by bisection."""
    inside = outside + math.remainder(inside - outside, 2 * math.pi)
    for _ in range(30):
        middle = (outside + inside) / 2
        if bool(_inside(shape, point, radius, torch.tensor([middle], dtype=torch.float64))):
            inside = middle
        else:
            outside = middle
    return inside
