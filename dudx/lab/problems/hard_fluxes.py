"""Conditions on the flux that hold by construction on flat faces, such as ∂u/∂n + a u = g at x = 0.

With d, the distance from the face, and w, the network,

    u = w₀ (1 + a d) - g d + (d / L) (w - w₀),    w₀: the network at the point's projection onto the face.

Any u that fulfils the condition has this form with a smooth w, and no derivative of the network is needed. Between two
faces, cubic polynomials interpolate instead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from dudx.errors import InputError
from dudx.lab.problems.boundary_pieces import Piece
from dudx.lab.problems.conditions.boundary_selection import plane_coordinate

Function = Callable[[Any], Any]
#: Computes an output from the points, the network's output there, and that output at other points.
Column = Callable[[Any, Any, Function], Any]


@dataclass(frozen=True)
class FaceCondition:
    """A hard condition on a face: ∂u/∂n + a u = g, or u = g where `a` is None."""

    a: Function | None
    g: Function


def face_of(piece: Piece, bounds: tuple[tuple[float, ...], tuple[float, ...]]) -> tuple[int, int]:
    """Return the axis of a flat piece, and 0 at the lower or 1 at the upper end of the domain."""
    for axis in range(piece.shape.dimension):
        at = plane_coordinate(piece.surface, axis)
        for end in (0, 1):
            if at is not None and abs(at - bounds[end][axis]) <= 1e-9 * (bounds[1][axis] - bounds[0][axis]):
                return axis, end
    raise InputError(
        "Conditions on the flux are imposed exactly on the outer faces of a box, perpendicular to an axis; leave hard "
        "off elsewhere."
    )


def between_faces(
    axis: int, low: float, high: float, first: FaceCondition | None, last: FaceCondition | None
) -> Column:
    """Return the column of an output with conditions on one or both of two opposite faces."""
    length = high - low

    def projected(x: Any, at: float) -> Any:
        columns = [x[:, i : i + 1] for i in range(x.shape[1])]
        columns[axis] = 0.0 * columns[axis] + at
        return torch.cat(columns, dim=1)

    def one_flux(x: Any, w: Any, network: Function, flux: FaceCondition, at: float, s: Any, far: Any) -> Any:
        """`s` grows from 0 at the face to 1 at the opposite one, where u is `far` unless that is None."""
        assert flux.a is not None
        there = projected(x, at)
        value = network(there)
        slope = length * (flux.a(there) * value - flux.g(there))
        if far is None:
            return value + slope * s + s * (w - value)
        return value * (1 - s * s) + slope * s * (1 - s) + far * s * s + s * (1 - s) * (w - value)

    def column(x: Any, w: Any, network: Function) -> Any:
        s = (x[:, axis : axis + 1] - low) / length
        if first is None or first.a is None:
            assert last is not None
            far = None if first is None else first.g(projected(x, low))
            return one_flux(x, w, network, last, high, 1 - s, far)
        if last is None or last.a is None:
            far = None if last is None else last.g(projected(x, high))
            return one_flux(x, w, network, first, low, s, far)
        left, right = projected(x, low), projected(x, high)
        a, b = network(left), network(right)
        slope_a, slope_b = (
            length * (first.a(left) * a - first.g(left)), length * (last.a(right) * b - last.g(right))
        )  # fmt: skip
        t = 1 - s
        cubic = a * t * t * (1 + 2 * s) + b * s * s * (1 + 2 * t) + slope_a * s * t * t + slope_b * t * s * s
        return cubic + s * t * (w - a * t - b * s)

    return column
