"""Solve a problem by one call.

solution = solve(problem, minutes=5)
solution(points), solution.plot(), solution.error(reference), solution.save("run")
"""

from dudx.lab.solving.solution import Solution
from dudx.lab.solving.solver import solve

__all__ = ["Solution", "solve"]
