"""A condition as training uses it: a residual, and a sampler of the points where it holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Generator, Tensor

from dudx.residual.residual_function import Residual

Points = tuple[Tensor, Mapping[str, Tensor]]


class Sampler(Protocol):
    """Draws points of a condition, and the data its residual takes with them."""

    def __call__(self, n: int, generator: Generator, device: torch.device, dtype: torch.dtype) -> Points: ...


@dataclass(frozen=True)
class Condition:
    """An equation that holds on a part of the boundary, at the initial time, or at measured points.

    Attributes:
        name: the name of its term in the loss.
        kind: "initial", "boundary" or "data".
        residual: the equation.
        sample: draws points and the data that the residual takes with them.
        measured: all points and data where they are given rather than drawn.
    """

    name: str
    kind: Literal["initial", "boundary", "data"]
    residual: Residual
    sample: Sampler
    measured: Points | None = None


def subset_sampler(measured: Points) -> Sampler:
    """Make a sampler of given points: all of them, or a random subset where there are more than asked for."""

    def sample(n: int, generator: Generator, device: torch.device, dtype: torch.dtype) -> Points:
        points, values = measured[0].to(device, dtype), {k: v.to(device, dtype) for k, v in measured[1].items()}
        if len(points) > n:
            chosen = torch.randperm(len(points), generator=generator, device=device)[:n]
            points, values = points[chosen], {key: value[chosen] for key, value in values.items()}
        return points, values

    return sample
