"""The interface of sampling methods."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from dudx.lab.problems.geometry import Domain


@dataclass(frozen=True)
class SamplingContext:
    """The domain, the random generator and the current residual, for a sampling method."""

    domain: Domain
    generator: Generator
    device: torch.device
    dtype: torch.dtype
    #: Maps points (N, d) to the size of the residual (N,); None where there is no network yet.
    residual: Callable[[Tensor], Tensor] | None = None

    def uniform(self, n: int) -> Tensor:
        """Draw `n` uniform random points of the domain."""
        return self.domain.sample(n, self.generator, self.device, self.dtype)

    def rand(self, n: int) -> Tensor:
        """Draw uniform random numbers between 0 and 1, (n,)."""
        return torch.rand(n, generator=self.generator, device=self.device, dtype=self.dtype)

    def chosen(self, chances: Tensor, n: int) -> Tensor:
        """Choose `n` distinct row numbers with these probabilities."""
        return torch.multinomial(chances, n, generator=self.generator)


class Sampling(ABC):
    """A method to draw the points of the loss."""

    @abstractmethod
    def interior(self, n: int, context: SamplingContext) -> Tensor:
        """Draw `n` points of the domain, (n, d)."""

    def chances(self, points: Tensor, context: SamplingContext) -> Tensor | None:
        """Relative probabilities (N,) of candidates on the boundary; None keeps them uniform."""
        return None
