"""Waves of random directions, which let a network oscillate from the start (Tancik et al. 2020)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from dudx.errors import whole_number
from dudx.lab.features.feature import Feature, axes_given, positive


class Fourier(Feature):
    """cos and sin of random combinations of the coordinates.

    Args:
        axes: the coordinates.
        waves: how many; each makes two columns.
        scale: the deviation of the wave numbers, in radians per unit of length: the finest detail there is, about.
        seed: of the random numbers. They stay as they are; to train them use a layer of the network.
    """

    frequencies: Tensor

    def __init__(self, axes: int | Sequence[int], waves: int = 16, scale: float = 1.0, seed: int = 0):
        super().__init__()
        waves = whole_number(waves, "waves")
        self.axes, self.columns = axes_given(axes), 2 * waves
        drawn = torch.randn(len(self.axes), waves, generator=torch.Generator().manual_seed(seed))
        self.register_buffer("frequencies", (positive(scale, "scale") * drawn).to(torch.get_default_dtype()))

    def forward(self, x: Tensor) -> Tensor:
        angles = torch.matmul(x[:, self.axes], self.frequencies)
        return torch.cat([torch.cos(angles), torch.sin(angles)], dim=1)


FEATURE = Fourier
