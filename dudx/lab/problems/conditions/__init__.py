"""Conditions that select the solution of an equation, and how they become terms of a loss."""

from dudx.lab.problems.conditions.bound import Condition, Points, Sampler
from dudx.lab.problems.conditions.stated import (
    Data,
    Dirichlet,
    Equation,
    Initial,
    Interface,
    Neumann,
    Periodic,
    Robin,
    Stated,
)

__all__ = [
    "Condition",
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
    "Stated",
]
