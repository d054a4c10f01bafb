"""Choose settings by the numbers of inputs, equations and unknown functions of a problem."""

from __future__ import annotations

import math
from typing import Any

import torch

from dudx.engines.taylor import Taylor
from dudx.lab.problems import Problem
from dudx.lab.problems.mesh import Edges, Triangles
from dudx.lab.run.networks.mlp import MLP

#: With more inputs than this, points are not sampled by the residual: they are never close to each other.
_MANY = 6
#: Values on the boundary jump where points this close, relative to the domain, differ by this share of their range.
_CLOSE, _JUMP = 5e-3, 0.5
_PROBES = 2000


def chosen(problem: Problem) -> dict[str, Any]:
    """Return the settings that depend on the problem."""
    inputs, equations = len(problem.inputs), _equations(problem)
    found: dict[str, Any] = {"sampling": "uniform" if inputs > _MANY else "0.5 uniform + 0.5 adaptive"}
    if problem.singular_corners:
        found["network"] = "featured"
    if any(isinstance(piece.surface, Edges | Triangles) for piece in problem.domain.pieces):
        # Finding the points inside a mesh takes as long as a step.
        found |= {"sampling": "uniform", "resample": 10, "memory": 0.0}
    if _jumps(problem):
        found["tame"] = True
    if inputs == 1:
        # A curve is resolved by few points, and steps are cheap.
        return found | {"width": 20, "depth": 2, "batch": int(400 / math.sqrt(equations))}
    if inputs > _MANY:
        # Most parameters are in the first layer, and each point costs as much as it has inputs.
        return found | {"width": 16, "depth": 2, "batch": 800, "boundary_batch": 800, "initial_batch": 800}
    # About as many residuals as parameters, for any number of equations.
    batch = int((2000 if inputs == 2 else 3000) / math.sqrt(equations))
    edge = 400 if inputs == 2 else 800
    found |= {"width": 24 if inputs == 2 else 28, "batch": batch, "boundary_batch": edge, "initial_batch": edge}
    measured = sum(len(one.points) for one in problem.conditions.data)
    if problem.functions and measured:
        # Only measurements determine these functions: a network that starts
        # flat and has no more parameters than measurements follows their noise less.
        networks = 1 + len(problem.functions)
        found |= {"width": min(max(int(math.sqrt(measured / networks)) - 2, 8), 24), "depth": 2, "spread": 1.0}
    return found


def _jumps(problem: Problem) -> bool:
    """Return True if given boundary values jump between neighbouring points."""
    low, high = problem.domain.bounds
    size = max(b - a for a, b in zip(low, high, strict=True))
    generator = torch.Generator().manual_seed(0)
    for condition in problem.conditions:
        if condition.kind == "boundary":
            x, data = condition.sample(_PROBES, generator, torch.device("cpu"), torch.float64)
            close = torch.cdist(x, x) < _CLOSE * size
            for values in (values for name, values in data.items() if name.startswith("g")):
                spread = values.max() - values.min()
                if bool((close & ((values - values.T).abs() > _JUMP * spread)).any()):
                    return True
    return False


def _equations(problem: Problem) -> int:
    torch_state = torch.get_rng_state()
    network = MLP(len(problem.inputs), problem.outputs, 2, 1).double()
    torch.set_rng_state(torch_state)
    with torch.no_grad():
        returned = problem.residual(network, problem.domain.sobol(2, dtype=torch.float64), Taylor())
    return len(returned) if isinstance(returned, tuple) else 1
