"""Balls in three dimensions or more."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dudx.errors import InputError
from dudx.lab.problems.geometry import Shape
from dudx.lab.problems.surfaces import Numbers, Sphere, Surface


@dataclass(frozen=True)
class Ball(Shape):
    """The points no further than `radius` from a center in three dimensions or more; in the plane that is a Disc."""

    center: Sequence[float]
    radius: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "center", tuple(float(c) for c in self.center))
        if len(self.center) < 3 or not all(map(math.isfinite, self.center)):
            raise InputError(f"The center of a ball has three finite coordinates or more; got {self.center!r}.")
        if not (math.isfinite(self.radius) and self.radius > 0):
            raise InputError(f"The radius of a ball must be positive and finite; got {self.radius}.")

    @property
    def bounds(self) -> tuple[Numbers, Numbers]:
        return tuple(c - self.radius for c in self.center), tuple(c + self.radius for c in self.center)

    @property
    def surfaces(self) -> tuple[Surface, ...]:
        return (Sphere(tuple(self.center), self.radius),)

    def _distance(self, x: Tensor) -> Tensor:
        return torch.linalg.vector_norm(x - x.new_tensor(self.center), dim=1) - self.radius
