"""In layers at round holes."""

from __future__ import annotations

from dudx.lab.problems.boundary_pieces import Circle, Piece
from dudx.lab.problems.geometry import Domain
from dudx.lab.sampling.near_boundary import NearBoundary


class NearHoles(NearBoundary):
    """Close to the circles among the boundaries, as near-boundary is to all."""

    def pieces(self, domain: Domain) -> tuple[Piece, ...]:
        return tuple(piece for piece in domain.pieces if isinstance(piece.surface, Circle))


SAMPLING = NearHoles
