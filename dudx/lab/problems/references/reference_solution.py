"""Reference solution: values at the points where networks are scored, and a function of any points."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from dudx.errors import InputError
from dudx.lab.problems.geometry import Domain

Array = NDArray[np.float64]
# Points on the boundary may be outside by their rounding, in single precision too: relative to the largest coordinate.
ROUNDING = 1e-6


@dataclass(frozen=True)
class Reference:
    """A reference solution: values at the points where networks are scored, and a function of any points."""

    name: str
    domain: Domain
    points: Array
    values: Array
    evaluate: Callable[[Array], Array]

    def __call__(self, points: ArrayLike) -> Array:
        """The values (N, 1) at points (N, d), with columns in the order x, y, t."""
        x = np.asarray(points, dtype=np.float64)
        if x.ndim != 2 or x.shape[1] != self.domain.dimension:
            raise InputError(
                f"The points of the {self.name} reference must have shape (N, {self.domain.dimension}), "
                f"columns in the order x, y, t; got shape {x.shape}."
            )
        tolerance = ROUNDING * max(abs(bound) for corner in self.domain.bounds for bound in corner)
        # Not "distance > tolerance", so that NaN is refused as well.
        outside = ~(self.domain.signed_distance(torch.from_numpy(x)).numpy() <= tolerance)
        if outside.any():
            row = int(outside.argmax())
            place = tuple(x[row].tolist())
            raise InputError(f"Row {row} of the points, {place}, is outside the domain of the {self.name} reference.")
        return self.evaluate(x)[:, None]
