"""Estimate the error of a trained network without a reference solution.

The equations are linearised around the network u: R(u) + R'(u) e = 0. The correction e that makes the residuals at new
points smallest is the estimated error. It is sought among changes of the network and random features of many scales,
see `dudx.lab.run.error_directions`.

The constants of the three modules (points near the boundary, steepness of the features, their share, weights, and the
limit of determinacy) were chosen once, for all problems together, on the problems of `benchmarks/estimates.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Generator, Tensor, nn

from dudx.engines.interface import Engine
from dudx.errors import InputError
from dudx.lab.problems import Problem
from dudx.lab.problems.problem import Points
from dudx.lab.run.error_directions import Directions
from dudx.lab.run.error_points import boundary_factors, interior_points, where_it_matters

#: Least damping of the least-squares problem relative to the mean eigenvalue, against rounding errors, and how often
#: it may be multiplied by ten. With several times more residuals than directions the estimate hardly depends on it.
_DAMPING, _DAMPINGS = 1e-12, 6
#: Candidate points per point used.
_POOL = 4
#: A solution is not determined if there is a change of it that changes the residuals so many times less than a
#: typical function of the same size does. On well-posed problems it was at most 300, on sensitive ones (chaos,
#: backward heat, near resonance) 1e4, on those without a unique solution 3e4 and more.
_UNDETERMINED = 5e3
_POWER_STEPS = 60


@dataclass(frozen=True)
class Estimate:
    """Estimated error of a network.

    Attributes:
        relative_l2: ‖e‖ / ‖u + e‖ over the domain and all unknown functions, each where the equation depends on it;
            inf if there is no estimate.
        points: the number of interior points.
        directions: the number of search directions for e.
        late: ‖e‖ in the second half of time / ‖u + e‖ everywhere; without time, `relative_l2`.
        functions: ‖e‖ / ‖u + e‖ for each unknown function.
        reason: why there is no estimate; None if there is one.
    """

    relative_l2: float
    points: int
    directions: int
    late: float
    functions: list[float] = field(default_factory=list)
    reason: str | None = None


def estimate(
    problem: Problem,
    model: nn.Module,
    engine: Engine,
    points: int | None = None,
    directions: int = 1500,
    seed: int = 0,
) -> Estimate:
    """Estimate the relative error of a network from its residuals at new points.

    Args:
        problem: the equation and its conditions; its reference is not used, and unknown constants count as known.
        model: the network; it is not changed.
        engine: computes derivatives, with its steps set if it has any.
        points: interior points, and half as many per condition; by default four times the number of directions.
        directions: the largest number of search directions, half of them random features.
        seed: seed of points and directions.
    """
    parameter = next(model.parameters())
    device, dtype = parameter.device, parameter.dtype
    generator = Generator(device).manual_seed(seed)
    space = Directions(problem, model, engine, directions, generator)
    points = 4 * space.count if points is None else points
    x = problem.domain.sample(points, generator, device, dtype)
    u, along = space.values(problem.residual, x)
    asked = _asked(problem, model, x, engine, generator)
    along = along * asked[..., None]

    interior: Points = interior_points(problem.domain, _POOL * points, generator, dtype), {}
    half = points // 2 + 1
    drawn = [(problem.residual, interior, points)]
    drawn += [(c.residual, c.sample(_POOL * half, generator, device, dtype), half) for c in problem.conditions]
    parts = []
    for residual, (at, data), count in drawn:
        # Of data there are as many points as there are.
        kept, factors = where_it_matters(residual, model, at, engine, data, min(count, len(at)), generator)
        if residual is problem.residual:
            factors = boundary_factors(problem.domain, at[kept], factors)
        for r, j in zip(*space.of(residual, at[kept], {key: value[kept] for key, value in data.items()}), strict=True):
            parts.append((factors * r, factors[:, None] * j))
    correction, determinacy = _solved(parts, along, space.features)
    error, whole = along @ correction, u * asked + along @ correction
    size = whole.norm().clamp(min=1e-300)
    late = error if problem.time is None else error[:, x[:, problem.time] > _middle(problem)]
    each = error.norm(dim=1) / whole.norm(dim=1).clamp(min=1e-300)
    found = Estimate(float(error.norm() / size), points, space.count, float(late.norm() / size), each.tolist())
    return found if determinacy < _UNDETERMINED else _none(found, determinacy)


def _middle(problem: Problem) -> float:
    """Return the middle of the problem's time."""
    return sum(corner[problem.time or 0] for corner in problem.domain.bounds) / 2


@torch.no_grad()
def _asked(problem: Problem, model: nn.Module, x: Tensor, engine: Engine, generator: Generator) -> Tensor:
    """Return for each unknown function a mask (outputs, N) of the points at which the equation depends on it.

    A function that is defined on one side of an interface may have any value on the other side.
    """
    if problem.outputs == 1:
        return x.new_ones(1, len(x), dtype=torch.bool)

    def residuals(network: Any) -> Tensor:
        returned = problem.residual(network, x, engine)
        return torch.cat(returned if isinstance(returned, tuple) else (returned,), dim=1)

    before, found = residuals(model), []
    for output in range(problem.outputs):
        bump = _bump(len(problem.inputs), problem.outputs, output, generator).to(x)
        changed = (residuals(lambda x, bump=bump: model(x) + bump(x)) != before).any(dim=1)
        # One that the equation never asks for is a matter of conditions.
        found.append(changed if bool(changed.any()) else torch.ones_like(changed))
    return torch.stack(found)


def _bump(inputs: int, outputs: int, output: int, generator: Generator) -> nn.Module:
    """Return a random function of the inputs that is zero for all unknown functions but one."""
    first, last = nn.Linear(inputs, 4), nn.Linear(4, outputs)
    for leaf in (first.weight, first.bias, last.weight, last.bias):
        leaf.copy_(torch.randn(leaf.shape, generator=generator, device=generator.device))
    others = torch.arange(outputs) != output
    last.weight[others] = 0.0
    last.bias[others] = 0.0
    return nn.Sequential(first, nn.Tanh(), last)


def _solved(parts: Sequence[tuple[Tensor, Tensor]], along: Tensor, features: slice) -> tuple[Tensor, float]:
    """Return the coefficients of the directions that minimise the weighted residuals of all parts, and determinacy.

    The latter is the largest norm of a combination of directions whose residuals have the norm of a typical feature's.

    Args:
        parts: residuals and their derivatives along the directions, per equation and condition.
        along: the directions as functions, (outputs, N, directions).
        features: the directions whose residuals say what is typical.
    """
    values = along.flatten(0, 1) / math.sqrt(along.shape[1])
    sizes = values[:, features].square().sum(0).clamp(min=1e-300)
    factors = [_weight(j[:, features].square().mean(0) / sizes) / math.sqrt(len(r)) for r, j in parts]
    r = torch.cat([f * r for f, (r, _) in zip(factors, parts, strict=True)])
    j = torch.cat([f * j for f, (_, j) in zip(factors, parts, strict=True)])
    lengths = j.norm(dim=0)
    lengths = torch.where(lengths > 0, lengths, 1.0)  # a direction that no residual sees stays where it is
    j = j / lengths
    normal = j.T @ j
    factor = _factor(normal)
    solution = -torch.cholesky_solve((j.T @ r)[:, None], factor)[:, 0] / lengths
    return solution, _largest(values / lengths, factor)


def _factor(normal: Tensor) -> Tensor:
    """Return the Cholesky factor of a matrix with the least damping with which it is positive in rounded numbers."""
    mean, damping = normal.diagonal().mean(), 0.0
    for _ in range(_DAMPINGS):
        more = max(_DAMPING, 10 * damping)
        normal.diagonal().add_((more - damping) * mean)
        factor, failed = torch.linalg.cholesky_ex(normal)
        if not failed:
            return factor
        damping = more
    raise InputError("The error cannot be estimated: the residuals or their derivatives are not finite.")


def _weight(ratios: Tensor) -> float:
    """Return a factor that makes the residuals of a typical direction as large as the direction itself."""
    seen = ratios[ratios > 1e-20 * ratios.max()]
    return 1 / math.sqrt(float(seen.median())) if len(seen) else 1.0


def _largest(values: Tensor, factor: Tensor) -> float:
    """Return the largest |values v| with |Lᵀ v| = 1 for a Cholesky factor L, by power iteration."""
    v = torch.ones_like(factor[:, :1])
    length = v.norm()
    for _ in range(_POWER_STEPS):
        v = torch.cholesky_solve(values.T @ (values @ (v / length)), factor)
        length = v.norm().clamp(min=1e-300)
    return math.sqrt(float(length))


def _none(found: Estimate, determinacy: float) -> Estimate:
    """Return the estimate as one that is missing, with the reason."""
    reason = (
        f"the solution can change as a whole while the residuals change {determinacy:.0e} times less than they do for "
        "other changes: it is not unique, or too sensitive"
    )
    inf = math.inf
    return replace(found, relative_l2=inf, late=inf, functions=[inf] * len(found.functions), reason=reason)
