"""Domains in space, or in space and time: signed distance, and uniform points inside and on the boundary."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property, partial

import torch
from torch import Generator, Tensor
from torch.quasirandom import SobolEngine

from dudx.errors import InputError
from dudx.lab.problems.boundary_pieces import (
    PROBES,
    BoundarySample,
    Device,
    Piece,
    double,
    exactly,
    placed_on,
    sample_pieces,
)
from dudx.lab.problems.surfaces import Numbers

#: A number format is too coarse for a domain if its rounding exceeds this share of the domain's shortest side.
_RESOLUTION = 1e-3


class Domain(ABC):
    """A set of points with a boundary: a shape in space, or a shape over an interval of time.

    Geometry is computed in double precision, whatever the format of the points, with tolerances relative to the size
    of the domain, so that it may be small and far from the origin.
    """

    @property
    @abstractmethod
    def bounds(self) -> tuple[Numbers, Numbers]:
        """The lowest and the highest corner of a box around the domain."""

    @abstractmethod
    def _distance(self, x: Tensor) -> Tensor: ...

    @abstractmethod
    def _pieces(self) -> tuple[Piece, ...]: ...

    @property
    def dimension(self) -> int:
        return len(self.bounds[0])

    @cached_property
    def pieces(self) -> tuple[Piece, ...]:
        """The smooth pieces of the boundary, so that each can have its own condition; see `sample_pieces`."""
        return self._pieces()

    def signed_distance(self, x: Tensor) -> Tensor:
        """The distance to the boundary (N,), negative inside.

        It is exact for a box, an interval and a disc. For combinations it is the maximum or the minimum over the
        parts: the sign is right everywhere, and the size is at most the true distance, less where the nearest
        surface of a part is not on the boundary of the whole.
        """
        return self._checked_distance(x).to(x.dtype)

    def contains(self, x: Tensor) -> Tensor:
        """Mark the points that are inside or on the boundary, as booleans (N,)."""
        return self._checked_distance(x) <= 0

    def lies_outside(self, x: Tensor, relative: float = 1e-4) -> Tensor:
        """Mark the points that are outside by more than rounded coordinates explain, as booleans (N,).

        Args:
            x: the points, (N, d).
            relative: the tolerance, relative to the size of the domain.
        """
        return self._checked_distance(x) > self.tolerance(x.dtype, relative)

    def tolerance(self, dtype: torch.dtype, relative: float) -> float:
        """A length relative to the longest side of the domain, plus the rounding of coordinates in this format."""
        low, high = self.bounds
        longest = max(b - a for a, b in zip(low, high, strict=True))
        return relative * longest + 4 * torch.finfo(dtype).eps * max(map(abs, (*low, *high)))

    def sample(
        self, n: int, generator: Generator | None = None, device: Device = None, dtype: torch.dtype = torch.float32
    ) -> Tensor:
        """Draw exactly `n` uniform random points of the interior, (n, d); the device is the generator's by default."""
        place = placed_on(device, generator, dtype)
        unit = partial(torch.rand, generator=generator, device=place, dtype=dtype)
        return self._accepted(n, dtype, lambda count: unit(count, self.dimension))

    def sobol(self, n: int, seed: int = 0, device: Device = None, dtype: torch.dtype = torch.float32) -> Tensor:
        """The first `n` points of a scrambled Sobol sequence that are in the domain, (n, d): even and repeatable."""
        engine, place = SobolEngine(self.dimension, scramble=True, seed=seed), placed_on(device, None, dtype)
        return self._accepted(n, dtype, lambda count: engine.draw(count, dtype=dtype).to(place))

    def sample_boundary(
        self, n: int, generator: Generator | None = None, device: Device = None, dtype: torch.dtype = torch.float32
    ) -> BoundarySample:
        """Draw `n` points uniform by length over the whole boundary, the piece counted in the order of `pieces`."""
        self.check_resolution(dtype)
        return sample_pieces(self.pieces, n, generator, device, dtype)

    def check_resolution(self, dtype: torch.dtype) -> None:
        """Raise `InputError` where points of this format are too coarse for the domain."""
        for low, high in zip(*self.bounds, strict=True):
            rounding = torch.finfo(dtype).eps * max(abs(low), abs(high))
            if rounding > _RESOLUTION * (high - low):
                raise InputError(
                    f"A domain from {low:.10g} to {high:.10g} is too small so far from zero for {dtype}, which rounds "
                    f"coordinates by {rounding:.1g} there: measure coordinates from a corner of the domain, or use "
                    "float64."
                )

    def _checked_distance(self, x: Tensor) -> Tensor:
        if x.ndim != 2 or x.shape[1] != self.dimension:
            raise InputError(f"The points of this domain must have shape (N, {self.dimension}); got {tuple(x.shape)}.")
        return self._distance(double(x))

    def _accepted(self, n: int, dtype: torch.dtype, unit: Callable[[int], Tensor]) -> Tensor:
        self.check_resolution(dtype)

        def draw(count: int) -> tuple[Tensor]:
            candidates = self._scaled(unit(count))
            return (candidates[self._distance(double(candidates)) <= 0],)

        return exactly(n, self._share, draw)[0]

    def _scaled(self, unit: Tensor) -> Tensor:
        exact = double(unit)
        low, high = (exact.new_tensor(corner) for corner in self.bounds)
        return (low + (high - low) * exact).to(unit.dtype)

    @cached_property
    def _share(self) -> float:
        """The share of the bounding box that the domain takes up."""
        unit = SobolEngine(self.dimension, scramble=True, seed=0).draw(PROBES, dtype=torch.float64)
        return float(self.contains(self._scaled(unit)).double().mean())
