"""In layers at the boundary."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from dudx.errors import InputError
from dudx.lab.problems.boundary_pieces import Piece, sample_pieces
from dudx.lab.problems.geometry import Cylinder, Domain, Shape
from dudx.lab.sampling.early import times
from dudx.lab.sampling.sampler import Place, Sampling


class NearBoundary(Sampling):
    """Close to the boundary, the more so the closer; where there is a time, as far as things spread by then."""

    def pieces(self, domain: Domain) -> tuple[Piece, ...]:
        """The pieces of boundary that points are close to."""
        return domain.pieces

    def interior(self, n: int, place: Place) -> Tensor:
        if not (pieces := self.pieces(place.domain)):
            raise InputError("The domain has no such boundary that points could be drawn close to.")
        found: list[Tensor] = []
        while sum(map(len, found)) < n:
            points, normals, _ = sample_pieces(pieces, 2 * n, place.generator, place.device, place.dtype)
            reach = place.rand(len(points)).unsqueeze(1)
            if isinstance(place.domain, Cylinder):
                start, length = times(place.domain)
                share = ((points[:, -1:] - start) / length) ** 2  # even in the square root of time
                points = torch.cat([points[:, :-1], start + length * share], dim=1)
                reach = 2 * reach * share.sqrt()
            else:
                reach = reach**3
            inside = points - reach * _depth(place.domain) * normals
            found.append(inside[place.domain.contains(inside)])
        return torch.cat(found)[:n]


@cache
def _depth(domain: Domain) -> float:
    """How far from the boundary one can be."""
    space: Shape | Domain = domain.space if isinstance(domain, Cylinder) else domain
    return float(-space.signed_distance(space.sobol(4096, 0, "cpu", torch.float64)).min())


SAMPLING = NearBoundary
