"""Sampling of boundary layers."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from dudx.errors import InputError
from dudx.lab.problems.boundary_pieces import Piece, sample_pieces
from dudx.lab.problems.geometry import Cylinder, Domain, Shape
from dudx.lab.sampling.early import time_span
from dudx.lab.sampling.sampler import Sampling, SamplingContext


class NearBoundary(Sampling):
    """Draw points close to the boundary, denser towards it; with time, as far away as diffusion has spread by then."""

    def pieces(self, domain: Domain) -> tuple[Piece, ...]:
        """The pieces of boundary that points are drawn close to."""
        return domain.pieces

    def interior(self, n: int, context: SamplingContext) -> Tensor:
        if not (pieces := self.pieces(context.domain)):
            raise InputError("The domain has no such boundary that points could be drawn close to.")
        found: list[Tensor] = []
        while sum(map(len, found)) < n:
            points, normals, _ = sample_pieces(pieces, 2 * n, context.generator, context.device, context.dtype)
            reach = context.rand(len(points)).unsqueeze(1)
            if isinstance(context.domain, Cylinder):
                start, length = time_span(context.domain)
                share = ((points[:, -1:] - start) / length) ** 2  # uniform in the square root of time
                points = torch.cat([points[:, :-1], start + length * share], dim=1)
                reach = 2 * reach * share.sqrt()
            else:
                reach = reach**3
            inside = points - reach * _depth(context.domain) * normals
            found.append(inside[context.domain.contains(inside)])
        return torch.cat(found)[:n]


@cache
def _depth(domain: Domain) -> float:
    """The largest distance from the boundary inside the domain."""
    space: Shape | Domain = domain.space if isinstance(domain, Cylinder) else domain
    return float(-space.signed_distance(space.sobol(4096, 0, "cpu", torch.float64)).min())


SAMPLING = NearBoundary
