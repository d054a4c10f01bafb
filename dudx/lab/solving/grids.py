"""Values on regular grids, and the formats that others read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from dudx.errors import InputError
from dudx.lab import storage
from dudx.lab.problems import Problem

#: Grids have this many points at most; more inputs than three are held in the middle.
_MOST, _AXES = 2_000_000, 3


class Solved(Protocol):
    """What is asked of a solution to look at it."""

    problem: Problem
    result: dict[str, Any]

    @property
    def estimate(self) -> float | None: ...

    def __call__(self, points: np.ndarray) -> np.ndarray: ...

    def residual(self, points: np.ndarray) -> np.ndarray: ...

    def error(self, reference: Any) -> float: ...


@dataclass(frozen=True)
class Grid:
    """Values of each unknown function on a grid, NaN outside of the domain."""

    #: The coordinates along each axis of the grid, by the name of the input.
    axes: Mapping[str, np.ndarray]
    #: Inputs that are held, and where.
    held: Mapping[str, float]
    values: Mapping[str, np.ndarray]

    def arrays(self) -> dict[str, np.ndarray]:
        """Coordinates and values by name, for numpy's files."""
        return {**self.axes, **self.values}

    def to_xarray(self) -> Any:
        """The same as an `xarray.Dataset`, with xarray installed."""
        try:
            import xarray  # type: ignore[import-not-found]
        except ImportError as error:
            raise InputError("xarray is not installed: pip install xarray, or use `arrays`.") from error
        return xarray.Dataset({n: (tuple(self.axes), v) for n, v in self.values.items()}, dict(self.axes))

    def to_vtk(self, path: str | Path) -> Path:
        """A file that ParaView reads: structured points, in two or three dimensions."""
        place = Path(path)
        if place.suffix != ".vtk":
            raise InputError(f"A grid is written as .vtk; got {place.name!r}.")
        axes = list(self.axes.values())
        shape = [len(axis) for axis in axes] + [1] * (3 - len(axes))
        start = [float(axis[0]) for axis in axes] + [0.0] * (3 - len(axes))
        steps = [float(axis[1] - axis[0]) for axis in axes] + [1.0] * (3 - len(axes))
        lines = ["# vtk DataFile Version 3.0", ", ".join(self.axes), "ASCII", "DATASET STRUCTURED_POINTS"]
        lines += [f"{word} {' '.join(map(repr, numbers))}" for word, numbers in (
            ("DIMENSIONS", shape), ("ORIGIN", start), ("SPACING", steps))]  # fmt: skip
        lines.append(f"POINT_DATA {int(np.prod(shape))}")
        for name, values in self.values.items():
            # The first coordinate runs fastest.
            numbers = "\n".join(map(repr, values.T.reshape(-1).tolist()))
            lines += [f"SCALARS {name} double 1", "LOOKUP_TABLE default", numbers]
        storage.write_text(place, "\n".join(lines) + "\n")
        return place


def grid(solution: Solved, n: int, at: Mapping[str, float]) -> Grid:
    """Values on a grid of n points an axis, over the first three inputs that are not held.

    Args:
        solution: what is asked.
        n: points along each axis.
        at: inputs that are held, and where; further ones are held in the middle.
    """
    problem = solution.problem
    if strangers := [name for name in at if name not in problem.inputs]:
        raise InputError(f"There is no input named {strangers[0]!r}; the inputs are {', '.join(problem.inputs)}.")
    low, high = problem.domain.bounds
    free = [name for name in problem.inputs if name not in at][:_AXES]
    if not free or n < 2 or n ** len(free) > _MOST:
        raise InputError(f"A grid has 2 points an axis or more, and {_MOST} in all at most; got n = {n}.")
    middle = {name: (a + b) / 2 for name, a, b in zip(problem.inputs, low, high, strict=True)}
    held = {name: float(at.get(name, middle[name])) for name in problem.inputs if name not in free}
    axes = {name: np.linspace(low[i], high[i], n) for i, name in enumerate(problem.inputs) if name in free}
    mesh = np.meshgrid(*axes.values(), indexing="ij")
    columns = dict(zip(axes, (part.reshape(-1) for part in mesh), strict=True))
    x = np.stack([columns.get(name, np.full(mesh[0].size, held.get(name, 0.0))) for name in problem.inputs], axis=1)
    values = solution(x)
    # The outermost points are on the boundary, and outside of it by rounding.
    inside = problem.domain.signed_distance(torch.from_numpy(x)).numpy() <= 1e-9 * float(np.abs(x).max())
    values[~inside] = np.nan
    shaped = {name: values[:, i].reshape(mesh[0].shape) for i, name in enumerate(problem.names)}
    return Grid(axes, held, shaped)
