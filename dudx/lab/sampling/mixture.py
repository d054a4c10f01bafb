"""Several ways to draw points, each for its share of a batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from dudx.lab.sampling.early import times
from dudx.lab.sampling.sampler import Place, Sampling

#: So many candidates on the boundary are drawn for each point that is chosen among them.
_CANDIDATES = 8

Points = tuple[Tensor, Mapping[str, Tensor]]


class Mixture:
    """Ways to draw points with their shares, which add up to 1.

    With `ramp` there are fewer points soon after the start, by (τ / (τ + ramp))² at a time τ after it: where a start
    that does not fit the boundary makes the solution singular, the first moments would drown all others.
    """

    def __init__(self, parts: Sequence[tuple[float, Sampling]], ramp: float = 0.0):
        self.parts, self.ramp = list(parts), ramp

    def interior(self, n: int, place: Place) -> Tensor:
        """`n` points of the domain."""
        drawn = [self._thinned(way, count, place) for way, count in self._counts(n) if count]
        return drawn[0] if len(drawn) == 1 else torch.cat(drawn)

    def _thinned(self, way: Sampling, n: int, place: Place) -> Tensor:
        if not self.ramp:
            return way.interior(n, place)
        found: list[Tensor] = []
        while sum(map(len, found)) < n:
            points = way.interior(n, place)
            found.append(points[place.rand(n) < self._share_kept(points, place)])
        return torch.cat(found)[:n]

    def boundary(self, n: int, draw: Callable[[int], Points], place: Place) -> Points:
        """`n` points of those that `draw` gives, with their data."""
        plain, picked = 0, []
        for way, count in self._counts(n):
            candidates = None
            if count and (self.ramp or type(way).chances is not Sampling.chances):
                candidates = draw(_CANDIDATES * count)
            chances = None if candidates is None else self._chances(way, candidates[0], place)
            if candidates is None or chances is None:
                plain += count
            else:
                points, data = candidates
                rows = place.chosen(chances, count)
                picked.append((points[rows], {name: values[rows] for name, values in data.items()}))
        drawn = [draw(plain), *picked] if plain else picked
        if len(drawn) == 1:
            return drawn[0]
        points = torch.cat([points for points, _ in drawn])
        return points, {name: torch.cat([data[name] for _, data in drawn]) for name in drawn[0][1]}

    def _chances(self, way: Sampling, points: Tensor, place: Place) -> Tensor | None:
        chances = way.chances(points, place)
        if not self.ramp:
            return chances
        kept = self._share_kept(points, place)
        return kept if chances is None else kept * chances

    def _share_kept(self, points: Tensor, place: Place) -> Tensor:
        """Of points at their times, relative to the last moment, at which all are kept."""
        start, length = times(place.domain)
        passed = (points[:, -1] - start) / length
        ramp = self.ramp / length
        # Not 0 at the very start: there may be a point among candidates that is needed.
        return (passed * (1 + ramp) / (passed + ramp)).square().clamp(min=1e-12)

    def _counts(self, n: int) -> list[tuple[Sampling, int]]:
        """How many points each way draws; the first one makes up for rounding."""
        counts = [int(share * n) for share, _ in self.parts]
        counts[0] += n - sum(counts)
        return [(way, count) for (_, way), count in zip(self.parts, counts, strict=True)]
