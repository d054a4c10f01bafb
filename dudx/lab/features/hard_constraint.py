"""Values that hold by construction: u = g + φ N for any network N."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from dudx.errors import InputError
from dudx.lab.features.feature import Feature


class HardConstraint(nn.Module):
    """g(x) + φ₁(x) φ₂(x) … N(x): where a factor φ is zero, the solution is g.

    Args:
        factors: features with one column, such as `SmoothSqrt` (zero at the initial time) or `BoundaryFactor` (zero on
            walls).
        value: g, a function of the points (B, d) that returns (B, m), made of functions that the engines differentiate;
            zero unless given.
    """

    def __init__(self, *factors: Feature, value: Callable[[Tensor], Tensor] | None = None):
        super().__init__()
        if not factors or any(factor.columns != 1 for factor in factors):
            raise InputError("Hard values take at least one factor, each a feature of one column.")
        self.factors, self.value = nn.ModuleList(factors), value

    def forward(self, x: Tensor, output: Tensor) -> Tensor:
        for factor in self.factors:
            output = factor(x) * output
        return output if self.value is None else self.value(x) + output
