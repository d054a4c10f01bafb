"""Quasi-random sampling."""

from __future__ import annotations

import torch
from torch import Tensor

from dudx.lab.sampling.sampler import Sampling, SamplingContext


class Sobol(Sampling):
    """Draw points of a Sobol sequence, scrambled anew each time: low discrepancy, without gaps and clusters."""

    def interior(self, n: int, context: SamplingContext) -> Tensor:
        seed = int(torch.randint(2**31, (1,), generator=context.generator, device=context.device))
        return context.domain.sobol(n, seed, context.device, context.dtype)


SAMPLING = Sobol
