"""Features of re-entrant corners, where the derivatives of solutions are unbounded."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from dudx.errors import InputError
from dudx.lab.features.feature import Feature, column

#: Below this share of the size, the functions are rounded, so that their derivatives are finite at the corner itself.
_ROUNDED = 1e-6


class CornerFeature(Feature):
    """The leading singular functions r^(π/ω) cos(πθ/ω) and r^(π/ω) sin(πθ/ω) at a corner in the plane.

    Near a corner with the inner angle ω, solutions of second-order elliptic and parabolic equations behave like the
    first function where their values are given on both edges, and like the second one where their fluxes are given; θ
    is the angle to the bisector.

    Args:
        corner: the corner (x, y).
        bisector: the direction from the corner into the domain, halfway between the edges.
        angle: the inner angle ω in radians, between π and 2π where the corner is re-entrant.
        size: the length of the domain, relative to which the corner is rounded.
    """

    columns = 2

    def __init__(self, corner: Sequence[float], bisector: Sequence[float], angle: float, size: float = 1.0):
        super().__init__()
        length = math.hypot(*bisector)
        if len(corner) != 2 or len(bisector) != 2 or not length > 0 or not 0 < angle <= 2 * math.pi:
            raise InputError(
                "A corner has two coordinates, a bisector that is not zero, and an inner angle up to 2π; got "
                f"{corner!r}, {bisector!r} and {angle!r}."
            )
        self.corner, self.power = tuple(map(float, corner)), math.pi / angle
        self.along = (bisector[0] / length, bisector[1] / length)
        self.rounded = (_ROUNDED * size) ** 2

    def forward(self, x: Tensor) -> Tensor:
        a, b = (column(x, axis) - self.corner[axis] for axis in (0, 1))
        (c, s) = self.along
        ahead, aside = c * a + s * b, c * b - s * a
        distance = torch.sqrt(ahead * ahead + aside * aside + self.rounded)
        # The angle to the bisector by half of it, which is finite at the corner; it jumps behind the corner only.
        angle = 2 * self.power * torch.atan(aside / (distance + ahead))
        radius = distance**self.power
        return torch.cat([radius * torch.cos(angle), radius * torch.sin(angle)], dim=1)
