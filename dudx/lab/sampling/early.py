"""At early times, while much happens."""

from __future__ import annotations

import torch
from torch import Tensor

from dudx.errors import InputError
from dudx.lab.problems.geometry import Cylinder, Domain
from dudx.lab.sampling.sampler import Place, Sampling


class Early(Sampling):
    """Soon after the start: even in the square root of time, as things that spread go; on the boundary, too."""

    def interior(self, n: int, place: Place) -> Tensor:
        start, length = times(place.domain)
        points = place.uniform(n)
        t = points[:, -1]
        return torch.cat([points[:, :-1], (start + (t - start) ** 2 / length).unsqueeze(1)], dim=1)

    def chances(self, points: Tensor, place: Place) -> Tensor:
        start, length = times(place.domain)
        # The density of what is even in the square root, cut off where candidates are too few to follow it.
        return ((points[:, -1] - start) / length).clamp(min=1e-3) ** -0.5


def times(domain: Domain) -> tuple[float, float]:
    """When a domain begins, and how long it lasts."""
    if not isinstance(domain, Cylinder):
        raise InputError("This problem has no time, so that there are no early points and no ramp; leave them out.")
    (start,), (end,) = domain.time.bounds
    return start, end - start


SAMPLING = Early
