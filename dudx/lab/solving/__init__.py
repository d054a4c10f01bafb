"""Solve a problem by one call.

solution = solve(problem, minutes=5, out="run")
solution(points), solution.plot(), solution.error(reference), solution.integral(lambda u: u)
solution = load("run", problem)
"""

from dudx.lab.solving.derived_quantities import Integral
from dudx.lab.solving.identified_constants import IdentifiedConstant, IdentifiedConstants
from dudx.lab.solving.progress import Progress
from dudx.lab.solving.refits import refits
from dudx.lab.solving.solution import Solution
from dudx.lab.solving.solver import solve

load = Solution.load

__all__ = [
    "IdentifiedConstant",
    "IdentifiedConstants",
    "Integral",
    "Progress",
    "Solution",
    "load",
    "refits",
    "solve",
]
