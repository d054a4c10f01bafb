"""Sampling of boundary layers at round holes."""

from __future__ import annotations

from dudx.lab.problems.boundary_pieces import Circle, Piece
from dudx.lab.problems.geometry import Domain
from dudx.lab.sampling.near_boundary import NearBoundary


class NearHoles(NearBoundary):
    """Draw points close to the circles of the boundary only; see near-boundary."""

    def pieces(self, domain: Domain) -> tuple[Piece, ...]:
        return tuple(piece for piece in domain.pieces if isinstance(piece.surface, Circle))


SAMPLING = NearHoles
