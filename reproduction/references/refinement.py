"""Convergence of a solution as its mesh is refined."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np


@dataclass(frozen=True)
class Refinement:
    """One resolution of a convergence study."""

    h: float
    unknowns: int
    #: The relative L2 difference from the finest solution, which has none from itself.
    difference: float | None
    #: The observed order in h, from the row before to this one.
    order: float | None


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
