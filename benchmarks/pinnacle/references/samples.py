"""References as values at points, computed twice at different resolutions and kept in files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dudx.lab import file_formats
from dudx.lab.run.metrics import l2_relative

Array = np.ndarray


@dataclass(frozen=True)
class Samples:
    """Values (N, m) of a reference at points (N, d); NaN where a function has none.

    Attributes:
        agreement: the relative L2 distance to a coarser computation; None for formulas.
        method: how it was computed, in a few words.
    """

    points: Array
    values: Array
    agreement: float | None
    method: str


@dataclass(frozen=True)
class Computed:
    """A reference from a computation at two resolutions: `compute(fine, data)` returns points and values.

    The points are the same at both. `data` is the folder of the suite's files, for problems that differ with it.
    """

    compute: Callable[[bool, Path | None], tuple[Array, Array]]
    method: str

    def samples(self, path: Path, data: Path | None) -> Samples:
        """Return what is kept at `path`, or compute and keep it."""
        if path.exists():
            kept = file_formats.read_arrays(path)
            if str(kept["method"]) == self.method:
                return Samples(kept["points"], kept["values"].astype(float), float(kept["agreement"]), self.method)
        points, values = self.compute(True, data)
        coarse_points, coarse = self.compute(False, data)
        if not np.allclose(points, coarse_points, rtol=0, atol=1e-9):
            raise RuntimeError(f"The two resolutions of {path.stem!r} have different points.")
        known = np.isfinite(values) & np.isfinite(coarse)
        agreement = l2_relative(coarse[known], values[known])
        file_formats.make_folder(path.parent)
        file_formats.write_arrays(
            path, points=points, values=values, agreement=np.array(agreement), method=np.array(self.method)
        )
        return Samples(points, values, agreement, self.method)


def over_time(places: Array, times: Array, snapshots: Array) -> tuple[Array, Array]:
    """Return points (times * n, d + 1) and values (times * n, m) of snapshots (times, n, m) at places (n, d)."""
    points = np.column_stack([np.tile(places, (len(times), 1)), np.repeat(times, len(places))])
    return points, snapshots.reshape(len(points), -1)


def grid(*ticks: Array) -> Array:
    """Return the points (N, d) of a grid, the last axis running fastest."""
    return np.stack([axis.ravel() for axis in np.meshgrid(*ticks, indexing="ij")], axis=1)
