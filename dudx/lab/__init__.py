"""Solve differential equations with neural networks: problems, training, sweeps.

- Shapes: `Interval`, `Box`, `Disc`, `Ellipse`, `Ball`, `Polygon`, `Extrusion`, `Mesh`; combine them by `-`, `|`, `&`
  and `* Interval`, and `move`, `rotate` and `scale` them.
- Conditions: `Dirichlet`, `Neumann`, `Robin`, `Initial`, `Periodic`, `Equation`, `Interface`, `Data`, or any residual
  with a sampler as a `Condition`.
- `Problem` puts them together; `solve` trains a network and returns a `Solution`.
- Features: what is known of a solution, as inputs of a network (`Features`) or by construction (`HardConstraint`).
- `train`, `run_sweep` and `make_settings` run many trainings with all settings.
"""

from dudx.lab.features import (
    BoundaryFactor,
    Coordinates,
    CornerFeature,
    DiffusionFront,
    EvenFeatures,
    Feature,
    Features,
    FlatWall,
    FourierFeatures,
    HardConstraint,
    LogDistance,
    PeriodicFeatures,
    RoundWall,
    SmoothSqrt,
    WallDistance,
    mirrored_walls,
)
from dudx.lab.problems import Condition, Problem, problem
from dudx.lab.problems.conditions import Data, Dirichlet, Equation, Initial, Interface, Neumann, Periodic, Robin
from dudx.lab.problems.geometry import Box, Disc, Interval
from dudx.lab.problems.mesh import Mesh
from dudx.lab.problems.references import reference
from dudx.lab.problems.shapes import Ball, Polygon
from dudx.lab.problems.transformed import Ellipse, Extrusion, move, rotate, scale
from dudx.lab.problems.well_posedness import ProblemWarning
from dudx.lab.run.error_estimate import estimate
from dudx.lab.run.networks import MLP, FeaturedMLP, Separable
from dudx.lab.run.settings import Settings, make_settings
from dudx.lab.run.training import train
from dudx.lab.sampling import Sampling, SamplingContext
from dudx.lab.solving import (
    IdentifiedConstant,
    IdentifiedConstants,
    Integral,
    Progress,
    Solution,
    load,
    refits,
    solve,
)
from dudx.lab.solving.values import OutsideDomainWarning
from dudx.lab.sweep import Run, grid, run_sweep

__all__ = [
    "MLP",
    "Ball",
    "BoundaryFactor",
    "Box",
    "Condition",
    "Coordinates",
    "CornerFeature",
    "Data",
    "DiffusionFront",
    "Dirichlet",
    "Disc",
    "Ellipse",
    "Equation",
    "EvenFeatures",
    "Extrusion",
    "Feature",
    "FeaturedMLP",
    "Features",
    "FlatWall",
    "FourierFeatures",
    "HardConstraint",
    "IdentifiedConstant",
    "IdentifiedConstants",
    "Initial",
    "Integral",
    "Interface",
    "Interval",
    "LogDistance",
    "Mesh",
    "Neumann",
    "OutsideDomainWarning",
    "Periodic",
    "PeriodicFeatures",
    "Polygon",
    "Problem",
    "ProblemWarning",
    "Progress",
    "Robin",
    "RoundWall",
    "Run",
    "Sampling",
    "SamplingContext",
    "Separable",
    "Settings",
    "SmoothSqrt",
    "Solution",
    "WallDistance",
    "estimate",
    "grid",
    "load",
    "make_settings",
    "mirrored_walls",
    "move",
    "problem",
    "reference",
    "refits",
    "rotate",
    "run_sweep",
    "scale",
    "solve",
    "train",
]
