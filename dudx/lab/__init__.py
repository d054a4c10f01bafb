"""The laboratory: everything a physics-informed network needs around a residual."""

from dudx.lab.problems import Condition, Problem, problem
from dudx.lab.problems.conditions import Data, Dirichlet, Equation, Initial, Interface, Neumann, Periodic, Robin
from dudx.lab.problems.geometry import Box, Disc, Interval
from dudx.lab.problems.mesh import Mesh
from dudx.lab.problems.references import reference
from dudx.lab.problems.shapes import Ball, Polygon
from dudx.lab.run.settings import Settings, make_settings
from dudx.lab.run.training import train
from dudx.lab.solving import Solution, solve

__all__ = [
    "Ball",
    "Box",
    "Condition",
    "Data",
    "Dirichlet",
    "Disc",
    "Equation",
    "Initial",
    "Interface",
    "Interval",
    "Mesh",
    "Neumann",
    "Periodic",
    "Polygon",
    "Problem",
    "Robin",
    "Settings",
    "Solution",
    "make_settings",
    "problem",
    "reference",
    "solve",
    "train",
]
