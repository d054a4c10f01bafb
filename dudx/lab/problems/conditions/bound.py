"""A condition as training uses it: a residual, and what draws the points that it is to hold at."""

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
        measured: all points and data where they are given rather than drawn.
    """

    name: str
    kind: Literal["initial", "boundary", "data"]
    residual: Residual
    sample: Sampler
    measured: Points | None = None
