"""Uniform sampling."""

from __future__ import annotations

from torch import Tensor

from dudx.lab.sampling.sampler import Sampling, SamplingContext


class Uniform(Sampling):
    """Draw uniform random points."""

    def interior(self, n: int, context: SamplingContext) -> Tensor:
        return context.uniform(n)


SAMPLING = Uniform
