"""Error bars of the unknown constants of an inverse problem.

The equation and the conditions determine the solution for each value of the constants k. Its derivatives ∂u/∂k solve
the linearised equations; here they are the combinations of the network's derivatives in its parameters with the least
residuals. With them the measurements give the covariance of k as in nonlinear least squares, (SᵀS)⁻¹ σ² for the
derivatives S at the measured points and the variance σ² of the measurements' residuals.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from scipy import stats
from torch import Generator, Tensor, nn

from dudx.engines.taylor import Taylor
from dudx.errors import InputError
from dudx.lab.problems import Problem
from dudx.lab.run.coupled_view import InContext
from dudx.lab.run.objective import Objective
from dudx.lab.run.settings import Settings
from dudx.optim import Balance, linearize
from dudx.residual.residual_function import Residual

#: The most directions of the network's parameters, points per direction, and damping relative to the mean diagonal.
_DIRECTIONS, _POINTS, _DAMPING = 1500, 4, 1e-10
#: A constant has converged if training ended within its error, or this share of its value.
_CONVERGED = 1e-3


class Inverse(Protocol):
    """The parts of a solution that error bars need."""

    problem: Problem
    network: nn.Module
    settings: Settings
    result: dict[str, Any]


@dataclass(frozen=True)
class IdentifiedConstant:
    """An unknown constant with its error bar.

    Attributes:
        value: the least-squares value, for the equations linearised around the trained network.
        error: one standard deviation, due to the noise of the measurements.
        low, high: the 95 % confidence interval, by Student's distribution.
        trained: the value at which training ended, as in `solution.result`.
    """

    value: float
    error: float
    low: float
    high: float
    trained: float

    @property
    def converged(self) -> bool:
        """True if training ended closer to the least-squares value than its error, or than 0.1 %.

        Training stops too early otherwise, or a flexible network fits the noise at the cost of the equation.
        """
        return abs(self.value - self.trained) <= max(self.error, _CONVERGED * abs(self.value))

    def __float__(self) -> float:
        return self.value

    def __str__(self) -> str:
        doubt = "" if self.converged else f" (training ended at {self.trained:.6g})"
        return f"{self.value:.6g} ± {self.high - self.value:.2g}{doubt}"


class IdentifiedConstants(Mapping[str, IdentifiedConstant]):
    """The unknown constants of a solution by name.

    Attributes:
        correlation: the correlations between the constants, in their order.
        noise: the standard deviation of the measurements' residuals, by the name of the condition.
    """

    def __init__(
        self, constants: Mapping[str, IdentifiedConstant], correlation: np.ndarray, noise: Mapping[str, float]
    ):
        self._constants, self.correlation, self.noise = dict(constants), correlation, dict(noise)

    def __getitem__(self, name: str) -> IdentifiedConstant:
        return self._constants[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._constants)

    def __len__(self) -> int:
        return len(self._constants)

    def __str__(self) -> str:
        return "\n".join(f"{name} = {constant}" for name, constant in self.items())


def identified_constants(solution: Inverse) -> IdentifiedConstants:
    """Compute the error bars of a solution's constants from the measurements that training used."""
    problem, found = solution.problem, solution.result.get("unknowns")
    if not problem.unknowns or not found:
        raise InputError("This problem has no unknown constants.")
    if isinstance(solution.network, InContext):
        raise InputError("Error bars are not known for networks whose samples influence each other.")
    if problem.functions:
        raise InputError(
            "Error bars of constants beside unknown functions are not known; compare refits(problem, ...) instead."
        )
    network = copy.deepcopy(solution.network).double().cpu()
    objective = Objective(problem, solution.settings)
    measured = {c.name: (c.residual, *c.measured) for c, _ in objective.conditions if c.measured is not None}
    with problem.holding(found):
        linear = _Linearised(problem, network, list(problem.unknowns.values()))
        data = {name: linear.rows(residual, x.double(), given) for name, (residual, x, given) in measured.items()}
    count = sum(len(r) for r, _, _ in data.values())
    if count <= len(found):
        raise InputError(
            f"There are {count} measurements for {len(found)} constants; error bars need more measurements than that."
        )
    moved, corrected = linear.equations()
    rows, residuals, noise = [], [], {}
    for name, (r, along, own) in data.items():
        sensitivity = own + along @ moved
        # The residuals that are left are those of the corrected solution, which fulfils the equations.
        left = r + along @ corrected
        variance = float(left.square().sum()) / max(len(r) - len(found) * len(r) / count, 1e-300)
        noise[name] = math.sqrt(variance)
        scale = 1 / max(noise[name], 1e-300)
        rows.append(scale * sensitivity)
        residuals.append(scale * left)
    s, r = torch.cat(rows), torch.cat(residuals)
    covariance = torch.linalg.pinv(s.T @ s, hermitian=True)
    values = torch.tensor(list(found.values()), dtype=torch.float64) - covariance @ (s.T @ r)
    errors = covariance.diagonal().clamp(min=0).sqrt()
    reach = float(stats.t.ppf(0.975, count - len(found)))
    constants = {
        name: IdentifiedConstant(value, error, value - reach * error, value + reach * error, found[name])
        for name, value, error in zip(found, values.tolist(), errors.tolist(), strict=True)
    }
    size = errors.clamp(min=1e-300)
    return IdentifiedConstants(constants, (covariance / size / size[:, None]).numpy(), noise)


class _Linearised:
    """Equations and conditions, linearised in a network's parameters and in the constants."""

    def __init__(self, problem: Problem, network: nn.Module, constants: list[nn.Parameter]):
        self.network, self.constants = network.requires_grad_(True), constants
        self.leaves = list(network.parameters())
        total, generator = sum(leaf.numel() for leaf in self.leaves), Generator().manual_seed(0)
        self.chosen = torch.randperm(total, generator=generator)[:_DIRECTIONS].sort().values
        self.total, points = total, _POINTS * len(self.chosen)
        dtype, place = torch.float64, torch.device("cpu")
        drawn = [c for c in problem.conditions if c.measured is None]
        self.parts = [
            self.rows(problem.residual, problem.domain.sample(points, generator, place, dtype), {}),
            *(self.rows(c.residual, *c.sample(points // 2, generator, place, dtype)) for c in drawn),
        ]

    def rows(self, residual: Residual, x: Tensor, data: Mapping[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Return residuals (N,), and their derivatives in the chosen directions and in the constants."""
        given = {name: value.double() for name, value in data.items()}
        r, j = linearize(residual, self.network, x, Taylor(), [*self.leaves, *self.constants], data=given)
        dense = j.dense()
        return r.double(), dense[:, self.chosen].double(), dense[:, self.total :].double()

    def equations(self) -> tuple[Tensor, Tensor]:
        """Return the directions that keep the residuals small: for a change of each constant, and from now on."""
        weights = Balance().update([along.square().sum(1) for _, along, _ in self.parts], lambda one: one).tolist()
        factors = [math.sqrt(weight / len(r)) for (r, _, _), weight in zip(self.parts, weights, strict=True)]
        r, along, own = (
            torch.cat([f * part[i] for f, part in zip(factors, self.parts, strict=True)]) for i in range(3)
        )
        lengths = along.norm(dim=0)
        lengths = torch.where(lengths > 0, lengths, 1.0)
        along = along / lengths
        normal, right = along.T @ along, along.T @ torch.cat([own, r[:, None]], dim=1)
        damping = _DAMPING * normal.diagonal().mean()
        factor, failed = torch.linalg.cholesky_ex(normal + damping * torch.eye(len(normal), dtype=normal.dtype))
        while failed:  # by rounding
            damping = 100 * damping
            factor, failed = torch.linalg.cholesky_ex(normal + damping * torch.eye(len(normal), dtype=normal.dtype))
        solved = -torch.cholesky_solve(right, factor) / lengths[:, None]
        return solved[:, :-1], solved[:, -1]
