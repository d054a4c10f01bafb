"""Several ways to draw points, each for its share of a batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from dudx.lab.sampling.base import Place, Sampling

#: So many candidates on the boundary are drawn for each point that is chosen among them.
_CANDIDATES = 8

Points = tuple[Tensor, Mapping[str, Tensor]]


class Mixture:
    """Ways to draw points with their shares, which add up to 1."""

    def __init__(self, parts: Sequence[tuple[float, Sampling]]):
        self.parts = list(parts)

    def interior(self, n: int, place: Place) -> Tensor:
        """`n` points of the domain."""
        drawn = [way.interior(count, place) for way, count in self._counts(n) if count]
        return drawn[0] if len(drawn) == 1 else torch.cat(drawn)

    def boundary(self, n: int, draw: Callable[[int], Points], place: Place) -> Points:
        """`n` points of those that `draw` gives, with their data."""
        plain, picked = 0, []
        for way, count in self._counts(n):
            candidates = None
            if count and type(way).chances is not Sampling.chances:
                candidates = draw(_CANDIDATES * count)
            chances = None if candidates is None else way.chances(candidates[0], place)
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

    def _counts(self, n: int) -> list[tuple[Sampling, int]]:
        """How many points each way draws; the first one makes up for rounding."""
        counts = [int(share * n) for share, _ in self.parts]
        counts[0] += n - sum(counts)
        return [(way, count) for (_, way), count in zip(self.parts, counts, strict=True)]
