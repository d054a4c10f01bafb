"""Evenly at random."""

from __future__ import annotations

from torch import Tensor

from dudx.lab.sampling.sampler import Place, Sampling


class Uniform(Sampling):
    """Evenly at random, as published."""

    def interior(self, n: int, place: Place) -> Tensor:
        return place.uniform(n)


SAMPLING = Uniform
