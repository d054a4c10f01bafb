"""Where the equation holds least."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from dudx.lab.sampling.sampler import Place, Sampling


@dataclass(frozen=True)
class Adaptive(Sampling):
    """Where the residual is large: some of many candidates, each with a chance that grows with its residual.

    The chance is proportional to |r|^power / mean + floor (Wu et al., 2023, call it RAD). Before there is a network to
    ask, points are even.
    """

    power: float = 1.0
    floor: float = 0.1
    candidates: int = 8

    def interior(self, n: int, place: Place) -> Tensor:
        if place.residual is None:
            return place.uniform(n)
        points = place.uniform(self.candidates * n)
        sizes = place.residual(points).double() ** self.power
        # A residual that is not finite ends the run a moment later, and must not end it here by another error.
        chances = (sizes / sizes.mean().clamp(min=1e-300) + self.floor).nan_to_num(1.0, 1.0, 1.0)
        return points[place.chosen(chances, n)]


SAMPLING = Adaptive
