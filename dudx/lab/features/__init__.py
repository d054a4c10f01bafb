"""What is known of a solution, as columns that a network sees, and values that hold by construction.

The folder is the registry: a file of it that holds a `FEATURE` is one, by the file's name.
"""

from __future__ import annotations

from functools import cache

from dudx.lab.features.boundary import Boundary
from dudx.lab.features.coordinates import Coordinates
from dudx.lab.features.distance import Distance
from dudx.lab.features.even import Even
from dudx.lab.features.feature import Feature, Features
from dudx.lab.features.fourier import Fourier
from dudx.lab.features.front import Front
from dudx.lab.features.hard import Hard
from dudx.lab.features.harmonics import Harmonics
from dudx.lab.features.logarithm import Logarithm
from dudx.lab.features.root import SquareRoot
from dudx.lab.features.walls import Flat, Round, mirrored
from dudx.lab.lookup import held_in

__all__ = [
    "Boundary",
    "Coordinates",
    "Distance",
    "Even",
    "Feature",
    "Features",
    "Flat",
    "Fourier",
    "Front",
    "Hard",
    "Harmonics",
    "Logarithm",
    "Round",
    "SquareRoot",
    "features",
    "mirrored",
]


@cache
def features() -> dict[str, type[Feature]]:
    """The features by the name of their file."""
    return held_in(__name__, "FEATURE")
