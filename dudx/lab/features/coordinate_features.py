"""Features of single coordinates: symmetric, periodic, oscillating, or like the square root of time."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from dudx.errors import whole_number
from dudx.lab.features.feature import Feature, axes_given, column, positive


class Coordinates(Feature):
    """The coordinates along some axes, unchanged."""

    def __init__(self, axes: int | Sequence[int]):
        super().__init__()
        self.axes = axes_given(axes)
        self.columns = len(self.axes)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([column(x, axis) for axis in self.axes], dim=1)


class EvenFeatures(Feature):
    """x² and √(x² + length²), for solutions that are symmetric about a plane: any network of them is even.

    Args:
        axis: the coordinate.
        length: the second column is rounded below this length and as straight as |x| beyond it.
        center: the coordinate of the plane of symmetry.
    """

    columns = 2

    def __init__(self, axis: int, length: float = 1.0, center: float = 0.0):
        super().__init__()
        self.axis, self.length, self.center = axis, positive(length, "length"), float(center)

    def forward(self, x: Tensor) -> Tensor:
        from_plane = column(x, self.axis) - self.center
        square = from_plane * from_plane
        return torch.cat([square, torch.sqrt(square + self.length**2)], dim=1)


class PeriodicFeatures(Feature):
    """cos and sin of 2π k x / period for k = 1 … harmonics: any network of them is periodic, with all derivatives.

    Args:
        axis: the coordinate.
        period: the period.
        harmonics: the number of wave numbers; one is enough, more let a network oscillate sooner.
        even: use cosines only, for a solution that is also even.
    """

    def __init__(self, axis: int, period: float, harmonics: int = 1, even: bool = False):
        super().__init__()
        self.harmonics = whole_number(harmonics, "The number of harmonics")
        self.axis, self.period, self.even = axis, positive(period, "period"), even
        self.columns = harmonics * (1 if even else 2)

    def forward(self, x: Tensor) -> Tensor:
        angle = 2 * math.pi / self.period * column(x, self.axis)
        waves = range(1, self.harmonics + 1)
        cosines = [torch.cos(k * angle) for k in waves]
        return torch.cat(cosines if self.even else [*cosines, *(torch.sin(k * angle) for k in waves)], dim=1)


class FourierFeatures(Feature):
    """cos and sin of random linear combinations of the coordinates (Tancik et al. 2020).

    Args:
        axes: the coordinates.
        waves: the number of combinations; each makes two columns.
        scale: the standard deviation of the wave numbers, in radians per unit of length.
        seed: the seed of the wave numbers, which are not trained.
    """

    frequencies: Tensor

    def __init__(self, axes: int | Sequence[int], waves: int = 16, scale: float = 1.0, seed: int = 0):
        super().__init__()
        self.axes, self.columns = axes_given(axes), 2 * whole_number(waves, "The number of waves")
        drawn = torch.randn(len(self.axes), waves, generator=torch.Generator().manual_seed(seed))
        self.register_buffer("frequencies", (positive(scale, "scale") * drawn).to(torch.get_default_dtype()))

    def forward(self, x: Tensor) -> Tensor:
        angles = torch.matmul(x[:, self.axes], self.frequencies)
        return torch.cat([torch.cos(angles), torch.sin(angles)], dim=1)


class SmoothSqrt(Feature):
    """√(t - start), smoothed around the start, where it is 0.

    Heat from a boundary that is suddenly warm has spread as far as √t: of this column, the solution is a smooth
    function. For t much larger than `soft` the column is √t less a constant, to second order in soft / t.

    Args:
        axis: the coordinate, usually time.
        start: the zero of the root.
        soft: the duration over which it is smoothed.
    """

    columns = 1

    def __init__(self, axis: int, start: float = 0.0, soft: float = 1e-3):
        super().__init__()
        self.axis, self.start, self.soft = axis, float(start), positive(soft, "soft")

    def forward(self, x: Tensor) -> Tensor:
        return smooth_sqrt(column(x, self.axis) - self.start, self.soft) - math.sqrt(self.soft / 2)


def smooth_sqrt(t: Tensor, soft: float) -> Tensor:
    """The real part of √(t + i soft): smooth for all t, also negative ones, and √t for t much larger than soft."""
    # t + √(t² + soft²), written so that nothing cancels far before the start either.
    started = t >= 0
    longer = torch.sqrt(t * t + soft**2) + torch.where(started, t, -t)
    return torch.sqrt(0.5 * torch.where(started, longer, soft**2 / longer))
