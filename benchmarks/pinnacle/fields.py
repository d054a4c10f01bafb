"""Random fields of the suite, drawn again by their law with the seed that its generator has.

The suite stores its fields on grids. They are drawn here instead: the law is white noise divided by the square of the
wave number, the generator is NumPy's legacy one, and the seed is 20220722. The pictures of the fields that the suite
publishes agree with what is drawn here: the signs of one at all 65 536 points, the values of the other to the colours'
resolution.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from torch import Tensor

SEED = 20220722
SIZE = 256


@cache
def gaussian_field(seed: int = SEED, n: int = SIZE) -> np.ndarray:
    """Draw a periodic Gaussian field with mean 0 and deviation 1 on a grid (n along y, n along x)."""
    white = np.random.RandomState(seed).normal(size=(2, n, n))
    k = np.fft.fftfreq(n, 1 / n)
    squares = k[:, None] ** 2 + k**2
    squares[0, 0] = np.inf
    field = np.fft.ifft2((white[0] + 1j * white[1]) / squares).real
    return (field - field.mean()) / field.std()


@dataclass(frozen=True)
class GridFunction:
    """A function on the unit square, bilinear between its values on a grid (n along y, n along x), corners included."""

    values: np.ndarray

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the values at points, shape as x."""
        (a, b, c, d), s, r = self._cell(x, y)
        return a + (b - a) * s + (c - a) * r + (a - b - c + d) * s * r

    def gradient(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return the derivatives along x and y, which jump between cells."""
        (a, b, c, d), s, r = self._cell(x, y)
        cells = len(self.values) - 1
        return cells * (b - a + (a - b - c + d) * r), cells * (c - a + (a - b - c + d) * s)

    def _cell(self, x: Tensor, y: Tensor) -> tuple[tuple[Tensor, ...], Tensor, Tensor]:
        """Return the values at the corners of the points' cells, and the places in them from 0 to 1."""
        table = torch.as_tensor(self.values, dtype=x.dtype, device=x.device)
        cells = len(table) - 1
        along, up = x.detach() * cells, y.detach() * cells
        i, j = (place.floor().long().clamp(0, cells - 1) for place in (along, up))
        corners = table[j, i], table[j, i + 1], table[j + 1, i], table[j + 1, i + 1]
        return corners, along - i, up - j
