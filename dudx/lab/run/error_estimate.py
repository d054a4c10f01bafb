"""Estimate the error of a trained network without a reference solution.

The equations are linearised around the network u: R(u) + R'(u) e = 0. The correction e that makes the residuals at new
points smallest is the estimated error. It is a combination of derivatives of u, and of a slightly perturbed copy of u,
in the parameters. These functions resolve the fronts and layers that the network has learned, and training has not
already minimised over those of the copy.
"""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor, nn

from dudx.engines.interface import Engine
from dudx.lab.problems import Problem
from dudx.lab.problems.problem import Points
from dudx.optim import Balance, linearize
from dudx.residual.residual_function import Residual

#: Perturbation of the copy's weights, relative to the standard deviation of each tensor.
_DIFFERENCE = 0.1
#: Damping of the least-squares problem relative to the mean eigenvalue, against rounding errors. With several times
#: more residuals than directions the estimate hardly depends on it.
_DAMPING = 1e-10
#: Candidate points per point used.
_POOL = 4
#: Points per batch of residuals, and entries per block of a Jacobian.
_ROWS, _AT_ONCE = 2**13, 2**24


@dataclass(frozen=True)
class Estimate:
    """Estimated error of a network.

    Attributes:
        relative_l2: ‖e‖ / ‖u + e‖ over the domain and all unknown functions, each where the equation depends on it.
        points: the number of interior points.
        directions: the number of search directions for e.
        late: ‖e‖ in the second half of time / ‖u + e‖ everywhere; without time, `relative_l2`.
    """

    relative_l2: float
    points: int
    directions: int
    late: float


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
        directions: the largest number of search directions, chosen at random if the network has more.
        seed: seed of points and directions.
    """
    parameter = next(model.parameters())
    device, dtype = parameter.device, parameter.dtype
    generator = Generator(device).manual_seed(seed)
    moved = _Moved(model, generator)
    total = sum(leaf.numel() for leaf in moved.leaves)
    chosen = torch.randperm(total, generator=generator, device=device)[:directions].sort().values
    tangent = _Tangent(moved, engine, chosen)
    points = 4 * len(chosen) if points is None else points

    interior: Points = problem.domain.sample(_POOL * points, generator, device, dtype), {}
    half = points // 2 + 1
    drawn = [(problem.residual, interior, points)]
    drawn += [(c.residual, c.sample(_POOL * half, generator, device, dtype), half) for c in problem.conditions]
    parts = []
    for residual, (x, data), count in drawn:
        # Of data there are as many points as there are.
        kept, factors = _where_it_matters(residual, model, x, engine, data, min(count, len(x)), generator)
        for r, j in zip(*tangent.of(residual, x[kept], {key: value[kept] for key, value in data.items()}), strict=True):
            parts.append((factors * r, factors[:, None] * j))
    x = problem.domain.sample(points, generator, device, dtype)
    u, along = tangent.of(_values(problem.residual), x, {})
    correction = along @ _solved(parts)
    asked = _asked(problem, model, x, engine, generator)
    size = ((u + correction) * asked).norm().clamp(min=1e-300)
    error = correction * asked
    late = error if problem.time is None else error[:, x[:, problem.time] > _middle(problem)]
    return Estimate(float(error.norm() / size), points, len(chosen), float(late.norm() / size))


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


def _where_it_matters(
    residual: Residual,
    model: nn.Module,
    x: Tensor,
    engine: Engine,
    data: Mapping[str, Tensor],
    count: int,
    generator: Generator,
) -> tuple[Tensor, Tensor]:
    """Choose points, more of them where the residual is large, and the factors of their residuals.

    Residuals far above the mean count by their size rather than by their square. Else those of a corner or of the first
    moment, which are large and matter little to the solution, would hide all others.
    """
    sizes = []
    with torch.no_grad():
        for start in range(0, len(x), _ROWS):
            some = slice(start, start + _ROWS)
            given = {key: value[some] for key, value in data.items()}
            returned = residual(model, x[some], engine, **given)
            equations = returned if isinstance(returned, tuple) else (returned,)
            sizes.append(torch.cat(equations, dim=1).double().norm(dim=1))
    size = torch.cat(sizes)
    density = 0.5 + 0.5 * size / size.mean().clamp(min=1e-300)
    chosen = torch.multinomial(density, count, generator=generator)
    return chosen, 1 / density[chosen]


class _Moved(nn.Module):
    """u(x) plus the changes of two copies of the network, whose parameters may vary."""

    def __init__(self, model: nn.Module, generator: Generator):
        super().__init__()
        self.model = copy.deepcopy(model).requires_grad_(False)
        self.moving = nn.ModuleList([copy.deepcopy(model), _varied(model, generator)]).requires_grad_(True)
        self.still = copy.deepcopy(self.moving).requires_grad_(False)
        self.leaves = list(self.moving.parameters())

    def forward(self, x: Tensor) -> Tensor:
        u = self.model(x)
        for moving, still in zip(self.moving, self.still, strict=True):
            u = u + (moving(x) - still(x))
        return u


@torch.no_grad()
def _varied(model: nn.Module, generator: Generator) -> nn.Module:
    varied = copy.deepcopy(model)
    for leaf in varied.parameters():
        noise = torch.randn(leaf.shape, generator=generator, device=leaf.device, dtype=leaf.dtype)
        leaf.add_(_DIFFERENCE * leaf.std(correction=0) * noise)
    return varied


def _values(residual: Residual) -> Residual:
    """Return a residual whose values are the unknown functions themselves."""

    def outputs(**fields: Any) -> tuple[Any, ...]:
        return tuple(fields.values())

    keyword = inspect.Parameter.KEYWORD_ONLY
    outputs.__signature__ = inspect.Signature([inspect.Parameter(n, keyword) for n in residual.outputs])  # type: ignore[attr-defined]
    return Residual(outputs, residual.inputs)


class _Tangent:
    """Residuals (equations, N) and their derivatives along the chosen directions, in float64."""

    def __init__(self, model: _Moved, engine: Engine, chosen: Tensor):
        self.model, self.engine, self.chosen = model, engine, chosen
        self.rows = max(1, _AT_ONCE // sum(leaf.numel() for leaf in model.leaves))

    def of(self, residual: Residual, x: Tensor, data: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        found = []
        for start in range(0, len(x), self.rows):
            some = slice(start, start + self.rows)
            given = {key: value[some] for key, value in data.items()}
            r, j = linearize(residual, self.model, x[some], self.engine, self.model.leaves, data=given)
            rows = j.dense()[:, self.chosen].double()
            found.append((r.double().unflatten(0, (-1, len(x[some]))), rows.unflatten(0, (-1, len(x[some])))))
        values, rows = zip(*found, strict=True)
        return torch.cat(values, dim=1), torch.cat(rows, dim=1)


def _solved(parts: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    """Return the coefficients of the directions that minimise the balanced residuals of all parts."""
    weights = Balance().update([j.square().sum(1) for _, j in parts], lambda tensor: tensor).tolist()
    factors = [math.sqrt(weight / len(r)) for (r, _), weight in zip(parts, weights, strict=True)]
    r = torch.cat([f * r for f, (r, _) in zip(factors, parts, strict=True)])
    j = torch.cat([f * j for f, (_, j) in zip(factors, parts, strict=True)])
    lengths = j.norm(dim=0)
    lengths = torch.where(lengths > 0, lengths, 1.0)  # a direction that no residual sees stays where it is
    j = j / lengths
    normal = j.T @ j
    normal.diagonal().add_(_DAMPING * normal.diagonal().mean())
    factor = torch.linalg.cholesky(normal)
    return -torch.cholesky_solve((j.T @ r)[:, None], factor)[:, 0] / lengths
