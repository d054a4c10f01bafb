"""What a way to draw points is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from dudx.lab.problems.geometry import Domain


@dataclass(frozen=True)
class Place:
    """Where points are drawn, what from, and how far the equation is from holding there."""

    domain: Domain
    generator: Generator
    device: torch.device
    dtype: torch.dtype
    #: The size of the residual at points (N, d), (N,); None where there is no network to ask.
    residual: Callable[[Tensor], Tensor] | None = None

    def uniform(self, n: int) -> Tensor:
        """Points spread evenly at random."""
        return self.domain.sample(n, self.generator, self.device, self.dtype)

    def rand(self, n: int) -> Tensor:
        """Numbers between 0 and 1, (n,)."""
        return torch.rand(n, generator=self.generator, device=self.device, dtype=self.dtype)

    def chosen(self, chances: Tensor, n: int) -> Tensor:
        """`n` distinct row numbers, each with its chance."""
        return torch.multinomial(chances, n, generator=self.generator)


class Sampling(ABC):
    """A way to draw points."""

    @abstractmethod
    def interior(self, n: int, place: Place) -> Tensor:
        """`n` points of the domain, (n, d)."""

    def chances(self, points: Tensor, place: Place) -> Tensor | None:
        """With what chance candidates on the boundary are taken, (N,); None takes them as they come."""
        return None
