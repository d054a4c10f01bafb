"""Input features for networks, from what is known of a solution, and values that hold by construction."""

from dudx.lab.features.coordinate_features import (
    Coordinates,
    EvenFeatures,
    FourierFeatures,
    PeriodicFeatures,
    SmoothSqrt,
)
from dudx.lab.features.corner_features import CornerFeature
from dudx.lab.features.feature import Feature, Features
from dudx.lab.features.hard_constraint import HardConstraint
from dudx.lab.features.wall_features import (
    BoundaryFactor,
    DiffusionFront,
    FlatWall,
    LogDistance,
    RoundWall,
    WallDistance,
    mirrored_walls,
)

__all__ = [
    "BoundaryFactor",
    "Coordinates",
    "CornerFeature",
    "DiffusionFront",
    "EvenFeatures",
    "Feature",
    "Features",
    "FlatWall",
    "FourierFeatures",
    "HardConstraint",
    "LogDistance",
    "PeriodicFeatures",
    "RoundWall",
    "SmoothSqrt",
    "WallDistance",
    "mirrored_walls",
]
