"""Residual-based adaptive sampling."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from dudx.lab.sampling.sampler import Sampling, SamplingContext


@dataclass(frozen=True)
class Adaptive(Sampling):
    """Draw more points where the residual is large, with a density proportional to |r|^power / mean + floor.

    Known as RAD (Wu et al., 2023). Before there is a network, points are uniform.

    Args:
        power: the exponent of the residual.
        floor: the density where the residual is zero, relative to the mean.
        candidates: how many uniform candidates are drawn per point.
    """

    power: float = 1.0
    floor: float = 0.1
    candidates: int = 8

    def interior(self, n: int, context: SamplingContext) -> Tensor:
        if context.residual is None:
            return context.uniform(n)
        points = context.uniform(self.candidates * n)
        sizes = context.residual(points).double() ** self.power
        # A residual that is not finite ends the run a moment later with its own error.
        chances = (sizes / sizes.mean().clamp(min=1e-300) + self.floor).nan_to_num(1.0, 1.0, 1.0)
        return points[context.chosen(chances, n)]


SAMPLING = Adaptive
