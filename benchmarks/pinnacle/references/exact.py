"""Solutions by formulas."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from benchmarks.pinnacle.problems import hinv, hnd, pinv, pnd, wave2d_ms
from benchmarks.pinnacle.references.samples import Array, Samples
from dudx.lab import Problem
from dudx.lab.problems.references import reference

PI = np.pi
POINTS = 20_000
_TERMS = 1000


@dataclass(frozen=True)
class Formula:
    """A reference that is a function of points (N, d), with values (N, m)."""

    function: Callable[[Array], Array]
    method: str = "formula"

    def samples(self, problem: Problem) -> Samples:
        """Evaluate at points spread evenly over the domain."""
        points = problem.domain.sobol(POINTS, dtype=torch.float64).numpy()
        return Samples(points, self.function(points), None, self.method)


def stored(name: str) -> Callable[[Array], Array]:
    """Return a reference of the package by its name, which is loaded at the first call."""
    return lambda points: reference(name)(points)


def string(points: Array) -> Array:
    """Return two standing waves."""
    x, t = points[:, :1], points[:, 1:]
    return np.sin(PI * x) * np.cos(2 * PI * t) + np.sin(4 * PI * x) * np.cos(8 * PI * t) / 2


def multiscale(points: Array) -> Array:
    """Return a wave that decays."""
    x, y, t = points.T[:, :, None]
    return np.sin(20 * PI * x) * np.sin(PI * y) * np.exp(-(1 + (20 / 500) ** 2) * t)


def of_tensors(*functions: Callable[..., torch.Tensor], arguments: int | None = None) -> Callable[[Array], Array]:
    """Return the values of functions of torch tensors side by side.

    Each takes the coordinates one by one, as many as it names, or all points where `arguments` is 1.
    """

    def values(points: Array) -> Array:
        x = torch.from_numpy(points)
        found = [f(x) if arguments == 1 else f(*(x[:, [i]] for i in range(f.__code__.co_argcount))) for f in functions]
        return torch.cat(found, dim=1).numpy()

    return values


def driven_square(points: Array) -> Array:
    """Return waves that the edges of a square drive with the shape s(x, y) cos πt, from the shape at rest.

    With L u = u_xx + 2 u_yy the shape has L s = π² s. So u = s cos πt + v, where v is 0 on the edges and at first, and
    v_tt - L v = 2 π² s cos πt. That is a sum over the modes of the square; s has those with i = 1 or j = 2 only.
    """
    x, y, t = points.T
    k = np.arange(1, _TERMS + 1)
    signs = 2 * (-1.0) ** (k + 1) * k / PI
    along_y = signs * np.sinh(PI) / (1 + k**2), PI * np.sqrt(1 + 2 * k**2)
    along_x = signs * np.sinh(3 * PI) / (9 + k**2), PI * np.sqrt(k**2 + 8)
    found = wave2d_ms.shape(*(torch.from_numpy(c) for c in (x, y))).numpy() * np.cos(PI * t)
    for (size, tone), place, other in ((along_y, y, np.sin(PI * x)), (along_x, x, np.sin(2 * PI * y))):
        weights = 2 * PI**2 * size / (tone**2 - PI**2)
        for rows in np.array_split(np.arange(len(points)), max(1, len(points) // 1000)):
            swings = np.cos(PI * t[rows, None]) - np.cos(tone * t[rows, None])
            found[rows] += other[rows] * ((np.sin(PI * k * place[rows, None]) * swings) @ weights)
    return found[:, None]


FORMULAS = {
    "burgers1d_c": Formula(stored("burgers"), "Cole-Hopf"),
    "poisson2d_c": Formula(stored("poisson"), "finite elements"),
    "heat2d_cg": Formula(stored("heat"), "finite elements"),
    "heat2d_ms": Formula(multiscale),
    "wave1d_c": Formula(string),
    "wave2d_ms": Formula(driven_square, "series"),
    "pnd": Formula(of_tensors(pnd.waves, arguments=1)),
    "hnd": Formula(of_tensors(hnd.heat, arguments=1)),
    "pinv": Formula(of_tensors(pinv.temperature, pinv.conductivity)),
    "hinv": Formula(of_tensors(hinv.temperature, hinv.conductivity)),
}
