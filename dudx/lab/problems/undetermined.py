"""Find unknown functions that the equation and all conditions determine only up to a constant."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Generator, Tensor, nn

from dudx.engines.autodiff import AD
from dudx.lab.problems.conditions.condition import Condition
from dudx.lab.problems.conditions.condition_set import ConditionSet
from dudx.lab.problems.conditions.condition_types import Initial, Neumann, Robin
from dudx.lab.problems.conditions.variables import ProblemVariables
from dudx.residual.residual_function import Residual

_PROBES = 16
#: A residual that moves by less than this share of the shift, relative to its size, does not depend on the constant.
_ROUNDING = 1e-14
_SHIFT = 0.37


class _Shifted(nn.Module):
    """Smooth functions with a constant added to one of them."""

    def __init__(self, outputs: int, low: Tensor, high: Tensor):
        super().__init__()
        drawn = Generator().manual_seed(0)
        self.low, self.length = low, high - low
        self.waves = torch.randn(len(low), 4, generator=drawn, dtype=torch.float64)
        self.sums = torch.rand(4, outputs, generator=drawn, dtype=torch.float64)
        self.shift = torch.zeros(outputs, dtype=torch.float64)

    def forward(self, x: Tensor) -> Tensor:
        # Positive, so that roots and logarithms of the functions are defined.
        waves = torch.sin(torch.matmul((x - self.low) / self.length, self.waves))
        return 2 + torch.matmul(waves, self.sums) / 4 + self.shift


def undetermined(residual: Residual, variables: ProblemVariables, conditions: ConditionSet) -> list[str]:
    """Name the unknown functions to which a constant can be added without any residual changing."""
    low, high = (torch.tensor(corner, dtype=torch.float64) for corner in variables.domain.bounds)
    network = _Shifted(len(variables.outputs), low, high)
    imposed = set(_imposed(conditions, variables))
    before = list(_residuals(residual, network, variables, conditions))
    found = []
    for number, output in enumerate(variables.outputs):
        if output in imposed:
            continue
        network.shift[number] = _SHIFT
        after = _residuals(residual, network, variables, conditions)
        if all(_equal(a, b) for a, b in zip(before, after, strict=True)):
            found.append(output)
        network.shift[number] = 0.0
    return found


def _imposed(conditions: ConditionSet, variables: ProblemVariables) -> Iterator[str]:
    """Unknown functions with a value that holds by construction."""
    for one in conditions.hard:
        spec = one if isinstance(one, Initial) else one.spec
        if isinstance(spec, Robin) and spec.a != 0:
            yield spec.output(variables)
        for key in () if isinstance(spec, Neumann) else getattr(spec, "given", ()):
            output, along = variables.parse_derivative(key)
            if not along:
                yield output


def _residuals(
    residual: Residual,
    network: Callable[[Tensor], Tensor],
    variables: ProblemVariables,
    conditions: Sequence[Condition],
) -> Iterator[Tensor]:
    yield _values(residual, network, variables.domain.sobol(_PROBES, dtype=torch.float64))
    for condition in conditions:
        drawn = Generator().manual_seed(0)
        x, data = condition.sample(_PROBES, drawn, torch.device("cpu"), torch.float64)
        yield _values(condition.residual, network, x, **data)


def _values(residual: Residual, network: Callable[[Tensor], Tensor], x: Tensor, **data: Tensor) -> Tensor:
    found = residual(network, x, AD(), **data)
    return torch.cat([v.detach().reshape(-1) for v in (found if isinstance(found, tuple) else (found,))])


def _equal(one: Tensor, other: Tensor) -> bool:
    """Equal up to rounding; residuals that are not finite tell nothing, and count as different."""
    size = 1 + torch.maximum(one.abs(), other.abs()).max()
    return bool((one - other).abs().max() <= _ROUNDING * size)
