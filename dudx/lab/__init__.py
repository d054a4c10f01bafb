"""The laboratory: everything a physics-informed network needs around a residual."""

from dudx.lab.problems import Condition, Problem, problem
from dudx.lab.problems.references import reference
from dudx.lab.run.settings import Settings, make_settings
from dudx.lab.run.training import train

__all__ = ["Condition", "Problem", "Settings", "make_settings", "problem", "reference", "train"]
