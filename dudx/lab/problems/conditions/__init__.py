"""Conditions that select the solution of an equation, and how they become terms of a loss."""

from dudx.lab.problems.conditions.condition import Condition, Points, Sampler
from dudx.lab.problems.conditions.condition_types import (
    ConditionSpec,
    Data,
    Dirichlet,
    Equation,
    Initial,
    Interface,
    Neumann,
    Periodic,
    Robin,
)

__all__ = [
    "Condition",
    "ConditionSpec",
    "Data",
    "Dirichlet",
    "Equation",
    "Initial",
    "Interface",
    "Neumann",
    "Periodic",
    "Points",
    "Robin",
    "Sampler",
]
