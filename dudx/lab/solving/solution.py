"""The solution of a problem: a function of points, its error, plots and files."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import nn

from dudx.errors import InputError
from dudx.lab import file_formats
from dudx.lab.problems import Problem
from dudx.lab.run.settings import Settings
from dudx.lab.solving.derived_quantities import Integral, derived_residual, evaluated, integrate
from dudx.lab.solving.grids import Grid, Quantities, grid, write_on_mesh
from dudx.lab.solving.identified_constants import IdentifiedConstants, identified_constants
from dudx.lab.solving.stored_solution import read_solution
from dudx.lab.solving.values import as_points, reference_values, warn_outside

_ROWS = 2**13


class Solution:
    """The solution of a problem by one network, or by one network per window of time.

    Attributes:
        problem: the problem.
        network: a torch module from points (N, d) to values (N, m).
        settings: the settings of the run.
        result: the content of `result.json`: `estimate` (of the relative error, without a reference), `cpu_seconds`,
            `unknowns` (constants of an inverse problem), `windows` (of time), and more.
        history: the rows of `metrics.csv` over the whole training: losses, estimates, steps and CPU seconds.
    """

    def __init__(
        self,
        problem: Problem,
        network: nn.Module,
        settings: Settings,
        result: Mapping[str, Any],
        history: Sequence[Mapping[str, str]] = (),
        folder: Path | None = None,
    ):
        self.problem, self.network, self.settings = problem, network.eval(), settings
        self.result, self.history, self._folder = dict(result), list(history), folder

    @classmethod
    def load(cls, folder: str | Path, problem: Problem | None = None) -> Solution:
        """Load the solution that `solve` or `dudx train` left in a folder, on the CPU.

        Args:
            folder: the run's folder, or that of `save`.
            problem: the problem that was solved; may be left out for those of the package. Another one is refused.
        """
        return cls(*read_solution(Path(folder), problem))

    def __call__(self, points: ArrayLike | torch.Tensor) -> np.ndarray:
        """Evaluate the unknown functions (N, m) at points (N, d), columns in the order of the problem's inputs."""
        x = as_points(points, self.problem)
        warn_outside(x, self.problem)
        return self._values(x)

    def _values(self, x: np.ndarray) -> np.ndarray:
        return self._by_rows(x, self.network)

    def _by_rows(self, x: np.ndarray, function: Callable[[torch.Tensor], torch.Tensor]) -> np.ndarray:
        """Call a function on the network's device with points (N, d), some rows at a time."""
        like = next(self.network.parameters())
        with torch.no_grad():
            values = [function(rows.to(like)) for rows in torch.from_numpy(x).split(_ROWS)]
        return torch.cat(values).double().cpu().numpy()

    def residual(self, points: ArrayLike | torch.Tensor) -> np.ndarray:
        """Evaluate the residuals of the equations, (N, number of equations), at points."""
        return self._by_rows(as_points(points, self.problem), lambda x: evaluated(self, self.problem.residual, x))

    def evaluate(self, expression: Callable[..., Any], points: ArrayLike | torch.Tensor) -> np.ndarray:
        """Evaluate an expression such as `lambda u, v: v.x - u.y` at points; (N, number of its values).

        Args:
            expression: as an equation of the problem: a function of unknown functions, inputs, `points` and unknown
                constants by name. It returns one value or a tuple.
            points: where, (N, d).
        """
        x, quantity = as_points(points, self.problem), derived_residual(self, expression)
        warn_outside(x, self.problem)
        return self._by_rows(x, lambda rows: evaluated(self, quantity, rows)[:, :-1])

    def integral(
        self,
        expression: Callable[..., Any],
        on: Any = None,
        line: tuple[ArrayLike, ArrayLike] | None = None,
        n: int = 2**16,
        **at: float,
    ) -> Integral:
        """Integrate an expression over the domain, a part of its boundary, or a line.

        ```python
        flow = solution.integral(lambda u, n: u.along(n), on="right")
        ```

        Args:
            expression: as for `evaluate`, with one value; on a boundary it may take the outward normals `n`.
            on: a part of the boundary, as in conditions, or "boundary" for all of it; None for the domain.
            line: two points, for an integral along the line between them.
            n: the number of points.
            at: inputs that are held, such as `t=1.0`; else the integral is over them too.
        """
        return integrate(self, expression, on, line, at, n)

    @property
    def estimate(self) -> float | None:
        """The relative error estimated without a reference; None if unknown, see `no_estimate`."""
        found = self.result.get("estimate")
        return None if found is None or found.get("reason") else float(found["relative_l2"])

    @property
    def no_estimate(self) -> str | None:
        """Why there is no error estimate, where the estimate itself says so; else None."""
        return (self.result.get("estimate") or {}).get("reason")

    @cached_property
    def unknowns(self) -> IdentifiedConstants:
        """The unknown constants with error bars, correlations, and whether each has converged.

        The errors are due to the noise of the measurements; there must be more of these than constants.
        """
        return identified_constants(self)

    def error(
        self, reference: Callable[..., Any] | tuple[ArrayLike, ArrayLike], points: ArrayLike | None = None
    ) -> float:
        """Compute the relative L2 error against a reference.

        Args:
            reference: a function of some of the inputs by name, as in conditions: it receives torch tensors (N, 1), or
                all `points` (N, d), and returns a value, or a tuple with one per unknown function. Or a tuple of points
                (N, d) and values (N, m). NaN and None are not compared.
            points: where; else 10 000 points spread evenly over the domain, or those of the reference.
        """
        x, true = reference_values(reference, points, self.problem)
        ours = self._values(x)
        known = np.isfinite(true)
        if not known.any():
            raise InputError("The reference has no finite values to compare with.")
        size = np.linalg.norm(true[known])
        if size == 0:
            raise InputError(
                "The reference is zero at all points, so there is no relative error; look at solution(points) itself."
            )
        return float(np.linalg.norm((ours - true)[known]) / size)

    def grid(self, n: int = 101, of: Quantities | None = None, **at: float) -> Grid:
        """Evaluate on a regular grid over the first three inputs that are not held.

        Args:
            n: points per axis.
            of: expressions by name, as for `evaluate`, instead of the unknown functions; or one expression.
            at: inputs that are held, and their values; those beyond the third axis are held at their middle.
        """
        return grid(self, n, at, of)

    def to_mesh(self, file: str | Path, path: str | Path, of: Quantities | None = None, **at: float) -> Path:
        """Write the values at the points of a mesh, with its cells, to a file such as `.vtu` for ParaView.

        Args:
            file: a mesh that meshio reads, such as the one of the domain, `Mesh("plate.msh")`.
            path: the file to write, in any format that meshio writes.
            of: expressions by name, as for `evaluate`, instead of the unknown functions; or one expression.
            at: inputs that are not coordinates of the mesh, such as `t=1.0`.
        """
        return write_on_mesh(self, Path(file), Path(path), of, at)

    def plot(
        self,
        path: str | Path | None = None,
        reference: Callable[..., Any] | None = None,
        of: Quantities | None = None,
        arrows: Sequence[str] = (),
        deformed: Sequence[str] = (),
    ) -> Any:
        """Plot the solution, and the residual or, with a reference, the error; return a matplotlib figure.

        Args:
            path: the file to write, if any.
            reference: as for `error`.
            of: expressions by name, as for `evaluate`, to plot instead; or one expression.
            arrows: two unknown functions, such as velocities ("u", "v"), whose streamlines are drawn over the maps.
            deformed: two unknown functions that are displacements; the maps are drawn on the deformed shape.
        """
        from dudx.lab.solving.solution_pictures import picture

        return picture(self, None if path is None else Path(path), reference, of, arrows, deformed)

    def save_html(self, path: str | Path, frames: int = 21) -> Path:
        """Write one page that needs no other file: the solution animated over time, the training, the numbers."""
        from dudx.lab.solving.html_page import write_page

        return write_page(self, Path(path), frames)

    def _repr_html_(self) -> str:
        from dudx.lab.solving.html_page import notebook_view

        return notebook_view(self)

    def save(self, folder: str | Path) -> Path:
        """Save the run with network, history and checkpoint, values on a grid, and a plot to a folder."""
        place = Path(folder)
        file_formats.make_folder(place)
        if self._folder is not None and self._folder.exists() and self._folder.resolve() != place.resolve():
            shutil.copytree(self._folder, place, dirs_exist_ok=True)
        found = self.grid(41 if len(self.problem.inputs) > 2 else 201)
        file_formats.write_arrays(place / "solution.npz", **found.arrays())
        self.plot(place / "solution.png")
        return place
