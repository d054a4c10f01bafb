"""How far a trained network is from the solution, without knowing the solution.

The equations are linearised around the network u, and solved for the correction e that makes the residuals at fresh
points smallest: R(u) + R'(u) e = 0. Its size is the estimate. Functions e are sought among the directions in which the
network itself can move, and in which a slightly different copy of it can: these resolve what the solution has of fronts
and layers, as the network has learned to, and the copy's have not been used up by training. Some of the points are held
back; the damping of the least-squares problem is the one with which the residuals there become smallest.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Generator, Tensor, nn

from dudx.engines.base import Engine
from dudx.errors import InputError
from dudx.lab.problems import Problem
from dudx.optim import Balance, linearize
from dudx.residual import Residual

#: How different the copy is: each weight by this share of the deviation of its tensor.
_DIFFERENCE = 0.1
#: Dampings that are tried, relative to the mean eigenvalue.
_DAMPINGS = [10.0**-k for k in range(2, 13, 2)]
#: Numbers of a Jacobian that are written out at once.
_AT_ONCE = 2**24


@dataclass(frozen=True)
class Estimate:
    """What is known of a network's error.

    Attributes:
        relative_l2: ‖e‖ / ‖u + e‖ over the domain, the estimate of the relative error.
        explained: by how much the correction lowers the squares of the residuals at points held back, from 0 (not at
            all: the estimate is a lower bound at best) to 1 (completely).
        damping: with which it did.
        points: at which the correction was computed.
    """

    relative_l2: float
    explained: float
    damping: float
    points: int


def estimate(
    problem: Problem,
    model: nn.Module,
    engine: Engine,
    points: int | None = None,
    directions: int = 4000,
    seed: int = 0,
) -> Estimate:
    """The relative error of a network, from its residuals at fresh points.

    Args:
        problem: the equation and its conditions; its reference is not looked at.
        model: the network, which is left as it is.
        engine: how derivatives are computed, with its steps set if it has any.
        points: in the interior, and half as many for each condition; twice the number of directions unless given.
        directions: at most this many are used, random ones of the network's where it has more.
        seed: of points and directions.
    """
    if problem.outputs != 1:
        raise InputError("The error is estimated for problems with one unknown function.")
    parameter = next(model.parameters())
    generator = Generator(parameter.device).manual_seed(seed)
    moved = _Moved(model, generator)
    total = sum(leaf.numel() for leaf in moved.leaves)
    chosen = torch.randperm(total, generator=generator, device=parameter.device)[:directions].sort().values
    tangent = _Tangent(moved, engine, chosen)
    points = 2 * len(chosen) if points is None else points

    x = problem.domain.sample(points, generator, parameter.device, parameter.dtype)
    parts = [tangent.of(problem.residual, x, {})]
    for condition in problem.conditions:
        at, data = condition.sample(max(points // 2, 2), generator, parameter.device, parameter.dtype)
        parts.append(tangent.of(condition.residual, at, dict(data)))
    fit, held = _weighted(parts)
    x = problem.domain.sample(points, generator, parameter.device, parameter.dtype)
    value, e = tangent.of(Residual(lambda u: u, problem.inputs), x, {})
    step, left, damping = _solved(fit, held)
    correction = e @ step
    return Estimate(
        relative_l2=float(correction.norm() / (value + correction).norm().clamp(min=1e-300)),
        explained=max(0.0, 1 - left),
        damping=damping,
        points=points,
    )


class _Moved(nn.Module):
    """u(x), and two copies of the network that may move away from what they are and take u with them."""

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


class _Tangent:
    """Residuals, and their derivatives along the chosen directions, in double precision."""

    def __init__(self, model: _Moved, engine: Engine, chosen: Tensor):
        self.model, self.engine, self.chosen = model, engine, chosen
        self.rows = max(1, _AT_ONCE // sum(leaf.numel() for leaf in model.leaves))

    def of(self, residual: Residual, x: Tensor, data: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        found = []
        for start in range(0, len(x), self.rows):
            some = slice(start, start + self.rows)
            given = {key: value[some] for key, value in data.items()}
            r, j = linearize(residual, self.model, x[some], self.engine, self.model.leaves, data=given)
            found.append((r.double(), j.dense()[:, self.chosen].double()))
        values, rows = zip(*found, strict=True)
        return torch.cat(values), torch.cat(rows)


def _weighted(parts: Sequence[tuple[Tensor, Tensor]]) -> list[tuple[Tensor, Tensor]]:
    """All parts together with weights that balance them, one half to fit and one half held back."""
    weights = Balance().update([j.square().sum(1) for _, j in parts], lambda tensor: tensor).tolist()
    halves = []
    for half in (0, 1):
        some = [(r[half::2], j[half::2], math.sqrt(w / len(r))) for (r, j), w in zip(parts, weights, strict=True)]
        halves.append((torch.cat([f * r for r, _, f in some]), torch.cat([f * j for _, j, f in some])))
    return halves


def _solved(fit: tuple[Tensor, Tensor], held: tuple[Tensor, Tensor]) -> tuple[Tensor, float, float]:
    """The step that lowers the squares held back most, what it leaves of them, and its damping."""
    (r, j), (r_held, j_held) = fit, held
    scale = torch.cat([j, j_held]).norm(dim=0).clamp(min=1e-300)  # directions of equal length
    j, j_held = j / scale, j_held / scale
    normal, gradient = j.T @ j, j.T @ r
    diagonal, best = normal.diagonal().clone(), (torch.zeros_like(gradient), 1.0, math.inf)
    for damping in _DAMPINGS:
        normal.diagonal().copy_(diagonal + damping * diagonal.mean())
        factor, info = torch.linalg.cholesky_ex(normal)
        if int(info):
            break  # with even less damping it is no better
        step = -torch.cholesky_solve(gradient[:, None], factor)[:, 0]
        left = float((r_held + j_held @ step).square().sum() / r_held.square().sum().clamp(min=1e-300))
        if left < best[1]:
            best = (step / scale, left, damping)
    return best
