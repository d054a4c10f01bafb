"""The coordinates themselves, or some of them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from dudx.lab.features.feature import Feature, axes_given, column


class Coordinates(Feature):
    """The coordinates of some axes, as they are."""

    def __init__(self, axes: int | Sequence[int]):
        super().__init__()
        self.axes = axes_given(axes)
        self.columns = len(self.axes)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([column(x, axis) for axis in self.axes], dim=1)


FEATURE = Coordinates
