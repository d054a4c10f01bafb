"""Burgers' equations for two velocities in a periodic square, from a random state.

The suite's initial state is a file without a seed. It is drawn here by the law of the suite's generator, with the seed
there: waves of periods 1 to 1/3, so the whole has period 1. `problem(data)` takes the suite's state from its files.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import torch

from benchmarks.pinnacle.fields import SEED
from dudx.errors import InputError
from dudx.lab import Box, Initial, Interval, Periodic, Problem

TITLE = "Burgers2d-C"
SIDE, NU, WAVES = 4.0, 0.001, 4
FILES = ("burgers2d_init_u_0.dat", "burgers2d_init_v_0.dat")


def waves(x, y):
    """Return sines and cosines (N, 32) at points (N, 1), torch or numpy."""
    library = torch if isinstance(x, torch.Tensor) else np
    phases = [2 * math.pi * (i * x + j * y) for i in range(WAVES) for j in range(WAVES)]
    return library.concatenate([*map(library.sin, phases), *map(library.cos, phases)], 1)


def drawn() -> np.ndarray:
    """Draw coefficients (2, 32) of u and v, of which the first of the cosines is the constant."""
    draw = np.random.RandomState(SEED)
    coefficients = draw.normal(size=(2, 2 * WAVES**2))
    ticks = np.linspace(0, SIDE, 512)
    x, y = (axis.reshape(-1, 1) for axis in np.meshgrid(ticks, ticks))
    coefficients *= 2 / (waves(x, y) @ coefficients.T).max()
    coefficients[:, WAVES**2] += draw.normal(size=2)
    return coefficients


def read(data: Path) -> np.ndarray:
    """Return the coefficients of the state in the suite's files."""
    found = []
    for name in FILES:
        x, y, values = np.loadtxt(data / name, comments="%").T
        design = waves(x[:, None], y[:, None])
        one, *_ = np.linalg.lstsq(design, values, rcond=None)
        if np.abs(design @ one - values).max() > 1e-6 * np.abs(values).max():
            raise InputError(f"The state in {str(data / name)!r} is not made of the waves of the suite's generator.")
        found.append(one)
    return np.array(found)


def coefficients(data: Path | None = None) -> np.ndarray:
    """Return the coefficients of the initial state: the suite's where its files are given and there, else drawn."""
    return read(data) if data is not None and all((data / name).exists() for name in FILES) else drawn()


def problem(data: Path | None = None) -> Problem:
    """State the problem."""
    u0, v0 = torch.as_tensor(coefficients(data))[:, :, None]
    return Problem(
        lambda u, v: (
            u.t + u * u.x + v * u.y - NU * (u.xx + u.yy),
            v.t + u * v.x + v * v.y - NU * (v.xx + v.yy),
        ),
        inputs=("x", "y", "t"),
        domain=Box((0, 0), (SIDE, SIDE)) * Interval(0, 1),
        conditions=[
            Periodic("x", "y"),
            Initial(u=lambda x, y: waves(x, y) @ u0.to(x), v=lambda x, y: waves(x, y) @ v0.to(x)),
        ],
        title=TITLE,
    )
