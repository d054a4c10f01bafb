"""Several sampling methods, each for its share of a batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from dudx.lab.sampling.early import time_span
from dudx.lab.sampling.sampler import Sampling, SamplingContext

#: Candidates on the boundary per point that is chosen among them.
_CANDIDATES = 8

Points = tuple[Tensor, Mapping[str, Tensor]]


class Mixture:
    """Sampling methods with their shares of the points, which add up to 1.

    With `ramp` the density is lower at early times, by (τ / (τ + ramp))² at a time τ after the start: where initial
    values that do not match the boundary make the solution singular, early times would dominate the loss.
    """

    def __init__(self, parts: Sequence[tuple[float, Sampling]], ramp: float = 0.0):
        self.parts, self.ramp = list(parts), ramp

    def interior(self, n: int, context: SamplingContext) -> Tensor:
        """Draw `n` points of the domain, (n, d)."""
        drawn = [self._thinned(way, count, context) for way, count in self._counts(n) if count]
        return drawn[0] if len(drawn) == 1 else torch.cat(drawn)

    def _thinned(self, way: Sampling, n: int, context: SamplingContext) -> Tensor:
        if not self.ramp:
            return way.interior(n, context)
        found: list[Tensor] = []
        while sum(map(len, found)) < n:
            points = way.interior(n, context)
            found.append(points[context.rand(n) < self._share_kept(points, context)])
        return torch.cat(found)[:n]

    def boundary(self, n: int, draw: Callable[[int], Points], context: SamplingContext) -> Points:
        """Choose `n` of the points that `draw` gives, with their data."""
        plain, picked = 0, []
        for way, count in self._counts(n):
            candidates = None
            if count and (self.ramp or type(way).chances is not Sampling.chances):
                candidates = draw(_CANDIDATES * count)
            chances = None if candidates is None else self._chances(way, candidates[0], context)
            if candidates is None or chances is None:
                plain += count
            else:
                points, data = candidates
                rows = context.chosen(chances, count)
                picked.append((points[rows], {name: values[rows] for name, values in data.items()}))
        drawn = [draw(plain), *picked] if plain else picked
        if len(drawn) == 1:
            return drawn[0]
        points = torch.cat([points for points, _ in drawn])
        return points, {name: torch.cat([data[name] for _, data in drawn]) for name in drawn[0][1]}

    def _chances(self, way: Sampling, points: Tensor, context: SamplingContext) -> Tensor | None:
        chances = way.chances(points, context)
        if not self.ramp:
            return chances
        kept = self._share_kept(points, context)
        return kept if chances is None else kept * chances

    def _share_kept(self, points: Tensor, context: SamplingContext) -> Tensor:
        """The share of points kept at their times, relative to the final time, at which all are kept."""
        start, length = time_span(context.domain)
        passed = (points[:, -1] - start) / length
        ramp = self.ramp / length
        # Not 0 at the very start: all candidates may be there.
        return (passed * (1 + ramp) / (passed + ramp)).square().clamp(min=1e-12)

    def _counts(self, n: int) -> list[tuple[Sampling, int]]:
        """How many points each method draws; the first one compensates for rounding."""
        counts = [int(share * n) for share, _ in self.parts]
        counts[0] += n - sum(counts)
        return [(way, count) for (_, way), count in zip(self.parts, counts, strict=True)]
