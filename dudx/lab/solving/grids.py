"""Values of a solution on regular grids, and their export to xarray and VTK."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from dudx.errors import InputError
from dudx.lab import file_formats
from dudx.lab.problems import Problem
from dudx.lab.problems.mesh_files import flat, read_mesh

#: The largest number of points and of axes; further inputs are held at their middle.
_MOST, _AXES = 2_000_000, 3
#: VTK's name of a grid cell and its corners in VTK's order, by the number of axes.
_CELLS = {
    1: ("line", [(0,), (1,)]),
    2: ("quad", [(0, 0), (1, 0), (1, 1), (0, 1)]),
    3: ("hexahedron", [(*corner, top) for top in (0, 1) for corner in ((0, 0), (1, 0), (1, 1), (0, 1))]),
}


class Solved(Protocol):
    """The parts of a solution that grids and pictures need."""

    problem: Problem
    result: dict[str, Any]
    history: list[Mapping[str, str]]

    @property
    def estimate(self) -> float | None: ...

    def __call__(self, points: np.ndarray) -> np.ndarray: ...

    def residual(self, points: np.ndarray) -> np.ndarray: ...

    def evaluate(self, expression: Callable[..., Any], points: np.ndarray) -> np.ndarray: ...

    def error(self, reference: Any) -> float: ...


@dataclass(frozen=True)
class Grid:
    """Values of each unknown function on a grid, NaN outside of the domain."""

    #: The coordinates along each axis of the grid, by the name of the input.
    axes: Mapping[str, np.ndarray]
    #: The values of the inputs that are held constant.
    held: Mapping[str, float]
    values: Mapping[str, np.ndarray]

    def arrays(self) -> dict[str, np.ndarray]:
        """Return coordinates and values by name, for `numpy.savez`."""
        return {**self.axes, **self.values}

    def to_xarray(self) -> Any:
        """Return the grid as an `xarray.Dataset`. Needs xarray."""
        try:
            import xarray  # type: ignore[import-not-found]
        except ImportError as error:
            raise InputError("xarray is not installed: pip install xarray, or use `arrays`.") from error
        return xarray.Dataset({n: (tuple(self.axes), v) for n, v in self.values.items()}, dict(self.axes))

    def to_vtk(self, path: str | Path) -> Path:
        """Write a .vtk or .vtu file for ParaView, without the cells outside of the domain. Needs meshio."""
        place = Path(path)
        kind = {".vtk": "vtk42", ".vtu": "vtu"}.get(place.suffix)
        if kind is None:
            raise InputError(f"A grid is written as .vtk or .vtu; got {place.name!r}.")
        try:
            import meshio
        except ImportError as error:
            raise InputError("meshio is not installed, which writes grids: pip install 'dudx[mesh]'.") from error
        coordinates = np.stack(np.meshgrid(*self.axes.values(), indexing="ij"), axis=-1)
        shape, dimension = coordinates.shape[:-1], len(self.axes)
        points = np.pad(coordinates.reshape(-1, dimension), ((0, 0), (0, 3 - dimension)))
        values: dict[str, Any] = {name: array.reshape(-1) for name, array in self.values.items()}
        lowest = np.arange(len(points)).reshape(shape)[(slice(None, -1),) * dimension].reshape(-1, 1)
        name, corners = _CELLS[dimension]
        cells = lowest + np.array([np.ravel_multi_index(corner, shape) for corner in corners])
        inside = np.asarray(np.isfinite(np.stack(list(values.values()))).all(axis=0))
        mesh = meshio.Mesh(points, [(name, cells[inside[cells].all(axis=1)])], point_data=values)
        with file_formats.atomic(place) as temporary:
            meshio.write(temporary, mesh, file_format=kind)
        return place


def write_on_mesh(solution: Solved, source: Path, path: Path, of: Quantities | None, at: Mapping[str, float]) -> Path:
    """Write a solution at the points of a mesh; see `Solution.to_mesh`."""
    problem, mesh = solution.problem, read_mesh(source)
    points = flat(np.asarray(mesh.points, dtype=np.float64))
    names = [name for name in problem.inputs if name not in at]
    if points.shape[1] != len(names) or any(name not in problem.inputs for name in at):
        raise InputError(
            f"The mesh has {points.shape[1]} coordinates and the solution the inputs {', '.join(problem.inputs)}; give "
            "the others, such as t=1.0."
        )
    columns = dict(zip(names, points.T, strict=True))
    x = np.stack([columns[n] if n in columns else np.full(len(points), at[n]) for n in problem.inputs], axis=1)
    import meshio

    cells: list[Any] = [(block.type, block.data) for block in mesh.cells]
    values: dict[str, Any] = {**named_columns(solution, x, of)}
    written = meshio.Mesh(mesh.points, cells, point_data=values)
    kinds = meshio.extension_to_filetypes.get(path.suffix.lower(), [])
    if not kinds:
        raise InputError(f"meshio does not know files of the kind {path.suffix!r}; choose .vtu, for example.")
    with file_formats.atomic(path) as temporary:
        meshio.write(temporary, written, file_format=kinds[0])
    return path


def inside_domain(problem: Problem, x: np.ndarray) -> np.ndarray:
    """Mark the points in the domain; the outermost points of a grid may be outside of it by rounding."""
    return ~problem.domain.lies_outside(torch.from_numpy(x), relative=1e-9).numpy()


#: Expressions of the unknown functions by name, or one expression.
Quantities = Callable[..., Any] | Mapping[str, Callable[..., Any]]


def grid(solution: Solved, n: int, at: Mapping[str, float], of: Quantities | None = None) -> Grid:
    """Evaluate a solution, or expressions of it, on a grid of n points per axis; see `Solution.grid`."""
    problem = solution.problem
    if strangers := [name for name in at if name not in problem.inputs]:
        raise InputError(f"There is no input named {strangers[0]!r}; the inputs are {', '.join(problem.inputs)}.")
    low, high = problem.domain.bounds
    free = [name for name in problem.inputs if name not in at][:_AXES]
    if not free or n < 2 or n ** len(free) > _MOST:
        raise InputError(f"A grid has 2 points per axis or more and at most {_MOST} points; got n = {n}.")
    middle = {name: (a + b) / 2 for name, a, b in zip(problem.inputs, low, high, strict=True)}
    held = {name: float(at.get(name, middle[name])) for name in problem.inputs if name not in free}
    axes = {name: np.linspace(low[i], high[i], n) for i, name in enumerate(problem.inputs) if name in free}
    mesh = np.meshgrid(*axes.values(), indexing="ij")
    spread = dict(zip(axes, (part.reshape(-1) for part in mesh), strict=True))
    x = np.stack([spread.get(name, np.full(mesh[0].size, held.get(name, 0.0))) for name in problem.inputs], axis=1)
    inside = inside_domain(problem, x)
    columns = named_columns(solution, x[inside], of)
    values = {name: np.full(mesh[0].shape, np.nan) for name in columns}
    for name, column in columns.items():
        values[name].reshape(-1)[inside] = column
    return Grid(axes, held, values)


def named_columns(solution: Solved, x: np.ndarray, of: Quantities | None) -> dict[str, np.ndarray]:
    """Evaluate the unknown functions, or expressions, at points (N, d): one column (N,) per name."""
    if of is None:
        return dict(zip(solution.problem.names, solution(x).T, strict=True))
    if not isinstance(of, Mapping):
        of = {"expression": of}
    if not of or not all(isinstance(name, str) for name in of):
        raise InputError('Expressions have names, of={"speed": lambda u, v: ...}.')
    found = {}
    for name, expression in of.items():
        columns = solution.evaluate(expression, x).T
        for number, column in enumerate(columns, 1):
            found[name if len(columns) == 1 else f"{name} {number}"] = column
    return found
