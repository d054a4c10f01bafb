"""The solution of a problem: a function of points, its error, plots and files."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import nn

from dudx.engines.taylor import Taylor
from dudx.errors import InputError
from dudx.lab import file_formats
from dudx.lab.problems import Problem
from dudx.lab.run.settings import Settings, to_toml
from dudx.lab.solving.grids import Grid, grid
from dudx.lab.solving.time_windows import Windows
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

    def __call__(self, points: ArrayLike | torch.Tensor) -> np.ndarray:
        """Evaluate the unknown functions (N, m) at points (N, d), columns in the order of the problem's inputs."""
        x = as_points(points, self.problem)
        warn_outside(x, self.problem)
        return self._values(x)

    def _values(self, x: np.ndarray) -> np.ndarray:
        dtype = next(self.network.parameters()).dtype
        with torch.no_grad():
            values = [self.network(rows.to(dtype)) for rows in torch.from_numpy(x).split(_ROWS)]
        return torch.cat(values).double().numpy()

    def residual(self, points: ArrayLike | torch.Tensor) -> np.ndarray:
        """Evaluate the residuals of the equations, (N, number of equations), at points."""
        x = as_points(points, self.problem)
        dtype = next(self.network.parameters()).dtype
        with torch.no_grad():
            found = [self._residual(rows.to(dtype)) for rows in torch.from_numpy(x).split(_ROWS)]
        return torch.cat(found).double().numpy()

    def _residual(self, x: torch.Tensor) -> torch.Tensor:
        if not isinstance(self.network, Windows):
            returned = self.problem.residual(self.network, x, Taylor())
            return torch.cat(returned if isinstance(returned, tuple) else (returned,), dim=1)
        found: torch.Tensor | None = None
        for rows, network in self.network.parts(x):
            returned = self.problem.residual(network, x[rows], Taylor())
            values = torch.cat(returned if isinstance(returned, tuple) else (returned,), dim=1)
            found = values.new_empty(len(x), values.shape[1]) if found is None else found
            found[rows] = values
        assert found is not None
        return found

    @property
    def estimate(self) -> float | None:
        """The relative error estimated without a reference; None if unknown."""
        found = self.result.get("estimate")
        return None if found is None else float(found["relative_l2"])

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

    def grid(self, n: int = 101, **at: float) -> Grid:
        """Evaluate on a regular grid; see `dudx.lab.solving.grids.grid`."""
        return grid(self, n, at)

    def plot(self, path: str | Path | None = None, reference: Callable[..., Any] | None = None) -> Any:
        """Plot the solution, and the residual or, with a reference, the error; return a matplotlib figure."""
        from dudx.lab.solving.solution_pictures import picture

        return picture(self, None if path is None else Path(path), reference)

    def save_html(self, path: str | Path, frames: int = 21) -> Path:
        """Write one page that needs no other file: the solution animated over time, the training, the numbers."""
        from dudx.lab.solving.html_page import write_page

        return write_page(self, Path(path), frames)

    def save(self, folder: str | Path) -> Path:
        """Save the run with its history and checkpoint, the network, values on a grid, and a plot to a folder."""
        place = Path(folder)
        file_formats.make_folder(place)
        if self._folder is not None and self._folder.exists() and self._folder.resolve() != place.resolve():
            shutil.copytree(self._folder, place, dirs_exist_ok=True)
        with file_formats.atomic(place / "network.pt") as temporary:
            torch.save(self.network.state_dict(), temporary)
        file_formats.write_text(place / "settings.toml", to_toml(self.settings))
        file_formats.write_text(place / "solution.json", file_formats.json_text(self.result))
        found = self.grid(41 if len(self.problem.inputs) > 2 else 201)
        file_formats.write_arrays(place / "solution.npz", **found.arrays())
        self.plot(place / "solution.png")
        return place
