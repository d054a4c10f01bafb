"""Numbers by which the statement of a problem is recognised when a stored solution is loaded."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Generator, Tensor

from dudx.engines.taylor import Taylor
from dudx.lab.problems.problem import Problem
from dudx.residual.residual_function import Residual

#: Points per term, and the difference, relative to the largest value, that rounding explains.
_POINTS, _TOLERANCE = 16, 1e-6


def statement_values(problem: Problem) -> dict[str, Tensor]:
    """Evaluate the equation, the conditions and hard values of a problem at fixed points, for a fixed function.

    Conditions with custom samplers are left out, which may draw other points each time.
    """
    low, high = (torch.tensor(corner, dtype=torch.float64) for corner in problem.domain.bounds)
    slopes = torch.linspace(0.5, 1.5, len(low) * problem.outputs, dtype=torch.float64).reshape(len(low), -1)

    def trial(x: Tensor) -> Tensor:
        return 1.5 + torch.sin(((x - low) / (high - low)) @ slopes)

    imposed = problem.hard_conditions()

    def network(x: Tensor) -> Tensor:
        return trial(x) if imposed is None else imposed(x, trial)

    generator, place, dtype = Generator().manual_seed(0), torch.device("cpu"), torch.float64
    x = problem.domain.sobol(_POINTS, dtype=dtype)
    terms: dict[str, tuple[Residual, Tensor, Mapping[str, Tensor]]] = {"the equation": (problem.residual, x, {})}
    for condition in problem.conditions:
        if all(condition is not spec for spec in problem.conditions.specs):
            terms[f"the condition {condition.name!r}"] = (
                condition.residual, *condition.sample(_POINTS, generator, place, dtype),
            )  # fmt: skip
    found = {"the domain": torch.stack([low, high])}
    with problem.holding(), torch.no_grad():
        for name, (residual, points, data) in terms.items():
            values = residual(network, points, Taylor(), **data)
            values = torch.cat(values if isinstance(values, tuple) else (values,), dim=1)
            found[name] = torch.cat([points, values.expand(len(points), -1)], dim=1).double()
    return found


def changed_parts(stored: Mapping[str, Tensor], problem: Problem) -> list[str]:
    """Return the parts of a problem's statement whose values differ from stored ones."""
    ours = statement_values(problem)
    return [name for name in dict.fromkeys([*stored, *ours]) if not _agree(stored.get(name), ours.get(name))]


def _agree(a: Tensor | None, b: Tensor | None) -> bool:
    if a is None or b is None or a.shape != b.shape:
        return False
    size = b[b.isfinite()].abs().max() if bool(b.isfinite().any()) else 0.0
    return torch.allclose(a, b, rtol=0.0, atol=_TOLERANCE * float(size), equal_nan=True)
