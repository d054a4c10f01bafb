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
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Generator, Tensor, nn

from dudx.engines.interface import Engine
from dudx.errors import InputError, UnsupportedError
from dudx.lab.problems import Problem
from dudx.lab.problems.problem import Points
from dudx.lab.run.error_directions import Directions
from dudx.lab.run.error_points import boundary_factors, interior_points, where_it_matters

#: Damping of the least-squares problem relative to the mean eigenvalue: the least one that reduces the residuals at
#: points held out (one in so many) at least half as much as the best. It must leave less than the last number.
_DAMPINGS, _HELD_OUT, _USELESS = (1e-12, 1e-11, 1e-10, 1e-8, 1e-6, 1e-4, 1e-2), 5, 1.0
#: Candidate points per point used.
_POOL = 4
#: A solution is not determined if there is a change of it that changes the residuals so many times less than a
#: typical function of the same size does. On well-posed problems it was at most 300, on sensitive ones (chaos,
#: backward heat, near resonance) 2e3 to 1e4, on those without a unique solution 3e4 and more.
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
    try:
        return _estimated(problem, model, engine, points, directions, seed)
    except UnsupportedError as error:  # a training is not lost for its estimate
        return Estimate(math.inf, 0, 0, math.inf, [], f"derivatives of the network are refused: {error}")


def _estimated(
    problem: Problem, model: nn.Module, engine: Engine, points: int | None, directions: int, seed: int
) -> Estimate:
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
    fit = _fitted(parts, along, space.features)
    error = along @ fit.coefficients
    whole = u * asked + error
    size = whole.norm().clamp(min=1e-300)
    late = error if problem.time is None else error[:, x[:, problem.time] > _middle(problem)]
    each = error.norm(dim=1) / whole.norm(dim=1).clamp(min=1e-300)
    reason = _reason(fit)
    if reason is not None:
        return Estimate(math.inf, points, space.count, math.inf, [math.inf] * len(each), reason)
    return Estimate(float(error.norm() / size), points, space.count, float(late.norm() / size), each.tolist())


def _reason(fit: _Fit) -> str | None:
    """Return why a fit is no estimate, or None."""
    if fit.determinacy > _UNDETERMINED:
        return (
            f"the solution can change as a whole while the residuals change {fit.determinacy:.0e} times less than they "
            "do for other changes: it is not unique, or too sensitive"
        )
    if fit.left >= _USELESS:
        return (
            "a correction found from the residuals at some points does not make them smaller at others: they are "
            "noise, or finer than what is tried"
        )
    return None


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


@dataclass(frozen=True)
class _Fit:
    """Coefficients of the directions, and how far they can be trusted.

    Attributes:
        coefficients: the directions' coefficients, which minimise the weighted residuals of all parts.
        left: mean absolute residual that a correction leaves at points that it was not fitted to, relative to before.
        determinacy: the largest norm of a combination of directions with residuals as large as a typical feature's.
    """

    coefficients: Tensor
    left: float
    determinacy: float


def _fitted(parts: Sequence[tuple[Tensor, Tensor]], along: Tensor, features: slice) -> _Fit:
    """Fit the directions to the residuals, with the damping that is best at points held out.

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
    held = torch.cat([torch.arange(len(r), device=j.device) % _HELD_OUT == _HELD_OUT - 1 for r, _ in parts])
    lengths = j.norm(dim=0)
    lengths = torch.where(lengths > 0, lengths, 1.0)  # a direction that no residual sees stays where it is
    j = j / lengths
    kept, others = j[~held], j[held]
    normal, slope = kept.T @ kept, kept.T @ r[~held]
    whole, whole_slope = normal + others.T @ others, slope + others.T @ r[held]
    before = float(r[held].abs().mean()) if bool(held.any()) else 0.0
    tried: list[tuple[float, Tensor]] = []
    for damping in _DAMPINGS:
        factor, some = _factor(normal, damping), _factor(whole, damping)
        if factor is not None and some is not None:
            correction = -torch.cholesky_solve(slope[:, None], factor)[:, 0]
            after = float((r[held] + others @ correction).abs().mean())
            tried.append((after / before if before else 0.0, some))
    if not tried:
        raise InputError("The error cannot be estimated: the residuals or their derivatives are not finite.")
    best = min(after for after, _ in tried)
    left, chosen = next((after, some) for after, some in tried if after <= max(best, (1 + best) / 2))
    coefficients = -torch.cholesky_solve(whole_slope[:, None], chosen)[:, 0] / lengths
    return _Fit(coefficients, left, _largest(values / lengths, tried[0][1]))


def _factor(normal: Tensor, damping: float) -> Tensor | None:
    """Return the Cholesky factor of a matrix with damping relative to its mean eigenvalue; None if it has none."""
    damped = normal + damping * normal.diagonal().mean() * torch.eye(
        len(normal), dtype=normal.dtype, device=normal.device
    )
    factor, failed = torch.linalg.cholesky_ex(damped)
    return None if failed else factor


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
