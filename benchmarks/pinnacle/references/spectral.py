"""Periodic problems by Fourier modes, and a square with cold edges by sines, with exponential time steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from numpy.fft import fft2, ifft2
from scipy.fft import dstn, idstn

from benchmarks.pinnacle.problems import burgers2d_c
from benchmarks.pinnacle.references.samples import Array, grid, over_time
from examples.gallery.references.spectral import etdrk4, exponential_steps, points_and_values

PI = np.pi


def kuramoto_sivashinsky(fine: bool, data: Path | None) -> tuple[Array, Array]:
    """Compute the solution at 128 places and 101 times."""
    n, steps = (512, 40_000) if fine else (256, 20_000)
    x = 2 * PI * np.arange(n) / n

    def advected(v: Array, k: Array) -> Array:
        kept = np.abs(k) < n / 3
        return -0.5j * 100 / 16 * k * np.fft.fft(np.fft.ifft(v * kept).real ** 2) * kept

    snapshots = etdrk4(
        (np.cos(x) * (1 + np.sin(x)))[None], 2 * PI, lambda k: 100 / 16**2 * k**2 - 100 / 16**4 * k**4,
        advected, 1.0, steps, 100,
    ).real  # fmt: skip
    return points_and_values(snapshots, 0.0, 2 * PI, 1.0, n // 128)


def gray_scott(fine: bool, data: Path | None) -> tuple[Array, Array]:
    """Compute both concentrations at 64 x 64 places and 21 times."""
    n, steps = (512, 1600) if fine else (256, 800)
    ticks = -1 + 2 * np.arange(n) / n
    x, y = np.meshgrid(ticks, ticks, indexing="ij")
    start = np.stack(
        [1 - np.exp(-80 * ((x + 0.05) ** 2 + (y + 0.02) ** 2)), np.exp(-80 * ((x - 0.05) ** 2 + (y - 0.02) ** 2))]
    )
    squares = _squares(n, PI)
    rate = np.stack([-1e-5 * squares - 0.04, -5e-6 * squares - 0.1])

    def reacted(modes: Array) -> Array:
        u, v = ifft2(modes).real
        return fft2(np.stack([0.04 - u * v**2, u * v**2]))

    steps_of = exponential_steps(fft2(start), rate, reacted, 200 / steps, steps)
    thin = n // 64
    kept = [f[:, ::thin, ::thin] for f in (start, *_every(steps_of, steps // 20, lambda v: ifft2(v).real))]
    places = grid(ticks[::thin], ticks[::thin])
    return over_time(places, np.linspace(0, 200, 21), _by_place(kept))


def burgers_plane(fine: bool, data: Path | None) -> tuple[Array, Array]:
    """Compute both velocities at 21 times; the state has period 1, so one period is computed and repeated."""
    n, steps = (1024, 4000) if fine else (512, 2000)
    ticks = np.arange(n) / n
    places = grid(ticks, ticks)
    start = (burgers2d_c.waves(places[:, :1], places[:, 1:]) @ burgers2d_c.coefficients(data).T).T.reshape(2, n, n)
    k = 2 * PI * np.fft.fftfreq(n, 1 / n)
    kept = (np.abs(k)[:, None] < 2 * PI * n / 3) & (np.abs(k) < 2 * PI * n / 3)

    def advected(modes: Array) -> Array:
        u, v = ifft2(modes).real
        along, up = ifft2(1j * k[:, None] * modes).real, ifft2(1j * k * modes).real
        return -fft2(u * along + v * up) * kept

    steps_of = exponential_steps(fft2(start) * kept, -burgers2d_c.NU * _squares(n, 2 * PI), advected, 1 / steps, steps)
    thin = n // 32
    found = [f[:, ::thin, ::thin] for f in (start, *_every(steps_of, steps // 20, lambda v: ifft2(v).real))]
    copies = [np.tile(f, (1, 4, 4)) for f in found]
    wide = np.arange(4 * 32) / 32
    return over_time(grid(wide, wide), np.linspace(0, 1, 21), _by_place(copies))


def heat_long(fine: bool, data: Path | None) -> tuple[Array, Array]:
    """Compute the temperature at 31 x 31 places and 101 times."""
    n, steps = (192, 10_000) if fine else (128, 5_000)
    h = 100 / steps
    ticks = np.arange(1, n) / n
    x, y = np.meshgrid(ticks, ticks, indexing="ij")
    pattern = np.sin(4 * PI * x) * np.sin(2 * PI * y)
    start = np.sin(4 * PI * x) * np.sin(3 * PI * y)
    k = PI * np.arange(1, n)
    rate = -0.001 * (k[:, None] ** 2 + k**2)
    # The weights of a step ask for the source at its beginning, twice at its middle and at its end.
    moments = iter(h * (step + part) for step in range(steps) for part in (0, 0.5, 0.5, 1))

    def heated(modes: Array) -> Array:
        u = _from_sines(modes)
        return _sines(5 * np.sin(u * u) * (1 + 2 * np.sin(PI * next(moments) / 4)) * pattern)

    steps_of = exponential_steps(_sines(start), rate, heated, h, steps)
    found = [start, *_every(steps_of, steps // 100, _from_sines)]
    thin = slice(n // 32 - 1, None, n // 32)
    values = np.array([f[thin, thin].ravel() for f in found])[:, :, None]
    return over_time(grid(ticks[thin], ticks[thin]), np.linspace(0, 100, 101), values)


def _sines(values: Array) -> Array:
    return np.asarray(dstn(values, type=1))


def _from_sines(modes: Array) -> Array:
    return np.asarray(idstn(modes, type=1))


def _squares(n: int, unit: float) -> Array:
    """Return the squares of the wave numbers (n, n) that are multiples of a unit."""
    k = unit * np.fft.fftfreq(n, 1 / n)
    return k[:, None] ** 2 + k**2


def _every(states: Iterator[Array], stride: int, shown: Callable[[Array], Array]) -> Iterator[Array]:
    return (shown(state) for step, state in enumerate(states, 1) if step % stride == 0)


def _by_place(fields: list[Array]) -> Array:
    """Turn snapshots of m fields on a grid into (times, n, m)."""
    return np.array([field.reshape(len(field), -1).T for field in fields])
