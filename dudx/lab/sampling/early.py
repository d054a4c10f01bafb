"""Sampling of early times."""

from __future__ import annotations

import torch
from torch import Tensor

from dudx.errors import InputError
from dudx.lab.problems.geometry import Cylinder, Domain
from dudx.lab.sampling.sampler import Sampling, SamplingContext


class Early(Sampling):
    """Draw points uniform in the square root of time, as diffusion spreads; on the boundary too."""

    def interior(self, n: int, context: SamplingContext) -> Tensor:
        start, length = time_span(context.domain)
        points = context.uniform(n)
        t = points[:, -1]
        return torch.cat([points[:, :-1], (start + (t - start) ** 2 / length).unsqueeze(1)], dim=1)

    def chances(self, points: Tensor, context: SamplingContext) -> Tensor:
        start, length = time_span(context.domain)
        # The density of points uniform in the square root, cut off where candidates are too few to follow it.
        return ((points[:, -1] - start) / length).clamp(min=1e-3) ** -0.5


def time_span(domain: Domain) -> tuple[float, float]:
    """The initial time of a domain, and its duration."""
    if not isinstance(domain, Cylinder):
        raise InputError("This problem has no time, so that there are no early points and no ramp; leave them out.")
    (start,), (end,) = domain.time.bounds
    return start, end - start


SAMPLING = Early
