"""Reference solutions, and the interface of the modules that compute them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

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


@dataclass(frozen=True)
class Refinement:
    """One resolution of a convergence study."""

    h: float
    unknowns: int
    #: The relative L2 difference from the finest solution, which has none from itself.
    difference: float | None
    #: The observed order in h, from the row before to this one.
    order: float | None


class Source(Protocol):
    """The interface of a module that computes a reference."""

    #: Whether `build` makes arrays to be shipped, rather than `load` needing none.
    STORED: bool

    def build(self) -> Mapping[str, np.ndarray]:
        """Compute the arrays to ship."""
        ...

    def load(self, arrays: Mapping[str, np.ndarray]) -> Reference:
        """The reference that those arrays describe."""
        ...

    def refinements(self) -> list[Refinement]:
        """Solve on ever finer resolutions and compare."""
        ...


def relative_difference(values: np.ndarray, truth: np.ndarray) -> float:
    """‖values − truth‖₂ / ‖truth‖₂."""
    return float(np.linalg.norm(values - truth) / np.linalg.norm(truth))


def refinement_rows(
    sizes: Sequence[float], unknowns: Sequence[int], solutions: Sequence[np.ndarray], dimension: int
) -> list[Refinement]:
    """Compare solutions at common points, from coarse to fine, with the last one."""
    differences = [relative_difference(solution, solutions[-1]) for solution in solutions[:-1]]
    orders = [
        # The number of unknowns tells how fine a mesh has become; h is only what it was asked to be.
        dimension * math.log(coarse / fine) / math.log(many / few)
        for (coarse, fine), (few, many) in zip(pairwise(differences), pairwise(unknowns), strict=False)
    ]
    return [Refinement(*row) for row in zip(sizes, unknowns, [*differences, None], [None, *orders, None], strict=True)]
