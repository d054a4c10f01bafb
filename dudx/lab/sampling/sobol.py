"""More evenly than at random."""

from __future__ import annotations

import torch
from torch import Tensor

from dudx.lab.sampling.sampler import Place, Sampling


class Sobol(Sampling):
    """Low discrepancy: a Sobol sequence, scrambled anew each time, which leaves no gaps and no clusters."""

    def interior(self, n: int, place: Place) -> Tensor:
        seed = int(torch.randint(2**31, (1,), generator=place.generator, device=place.device))
        return place.domain.sobol(n, seed, place.device, place.dtype)


SAMPLING = Sobol
