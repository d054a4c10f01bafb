"""Pictures of solutions in one, two, three and more inputs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dudx.errors import percent
from dudx.lab import file_formats
from dudx.lab.plots import COLOURS, ERROR_MAP, FIELD_MAP, STYLE, check_picture
from dudx.lab.solving.grids import Grid, Solved, grid, inside_domain
from dudx.lab.solving.values import reference_values

Reference = Callable[..., Any]
_FINE, _COARSE = 401, 151


def picture(solution: Solved, path: Path | None, reference: Reference | None = None) -> Figure:
    """Draw each unknown function, and beside it the residual or, given a reference, the error."""
    if path is not None:
        check_picture(path)
    problem = solution.problem
    one = len(problem.inputs) == 1
    rows = 1 if one else problem.outputs
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(10, 0.5 + 3.3 * rows), layout="constrained")
        axes = figure.subplots(rows, 2, squeeze=False)
        shown = curve_panels(axes[0], solution, reference) if one else map_panels(axes, solution, reference)
        figure.suptitle(f"{problem.title}{shown}")
        if path is not None:
            with file_formats.atomic(path) as temporary:
                figure.savefig(temporary, format=path.suffix.removeprefix("."))
    return figure


def curve_panels(axes: Any, solution: Solved, reference: Reference | None) -> str:
    """Draw curves in one variable."""
    problem = solution.problem
    found = grid(solution, _FINE, {})
    (x,) = found.axes.values()
    errors = _beside(solution, x[:, None], reference)
    for number, (name, values) in enumerate(found.values.items()):
        axes[0].plot(x, values, color=COLOURS[number % len(COLOURS)], label=name)
    for number in range(errors.shape[1]):
        axes[1].semilogy(x, np.abs(errors[:, number]).clip(1e-16), color=COLOURS[number % len(COLOURS)])
    axes[0].legend()
    axes[0].set(xlabel=problem.inputs[0], title="solution")
    axes[1].set(xlabel=problem.inputs[0], title=_title(solution, reference))
    return ""


def map_panels(axes: Any, solution: Solved, reference: Reference | None, **at: float) -> str:
    """Draw maps over the first two inputs; time is held at its end, other inputs at their middle."""
    problem = solution.problem
    held = _held(solution) | at
    found = grid(solution, _COARSE, held)
    x = _points(solution, found)
    errors = _beside(solution, x, reference)
    for number, (name, values) in enumerate(found.values.items()):
        show(axes[number][0], found, values, problem.time, FIELD_MAP)
        axes[number][0].set_title(name)
        column = errors[:, min(number, errors.shape[1] - 1)]
        beside = np.where(np.isnan(values), np.nan, np.abs(column).reshape(values.shape))
        show(axes[number][1], found, beside, problem.time, ERROR_MAP, _without_outliers(beside))
        axes[number][1].set_title(_title(solution, reference) if number == 0 else "")
    few = list(found.held.items())[:3]
    where = ", ".join(f"{name} = {value:.3g}" for name, value in few)
    return f", {where}{', …' if len(found.held) > 3 else ''}" if where else ""


def _without_outliers(values: np.ndarray) -> tuple[float | None, float | None]:
    """Return limits of a map's colours if a few outliers, as at a singular corner, would hide all other values."""
    finite = values[np.isfinite(values)]
    most = float(np.quantile(finite, 0.98)) if finite.size else 0.0
    return (0.0, most) if 0 < most < 0.1 * float(finite.max()) else (None, None)


def _held(solution: Solved) -> dict[str, float]:
    """Return the values of all but two inputs: time at its end, others at their middle."""
    problem = solution.problem
    low, high = problem.domain.bounds
    names = list(problem.inputs)
    free = names[:2]
    return {
        name: high[i] if i == problem.time else (low[i] + high[i]) / 2
        for i, name in enumerate(names)
        if name not in free
    }


def _points(solution: Solved, found: Grid) -> np.ndarray:
    mesh = np.meshgrid(*found.axes.values(), indexing="ij")
    columns = dict(zip(found.axes, (part.reshape(-1) for part in mesh), strict=True))
    size = mesh[0].size
    names = solution.problem.inputs
    return np.stack([columns[n] if n in columns else np.full(size, found.held[n]) for n in names], axis=1)


def _beside(solution: Solved, x: np.ndarray, reference: Reference | None) -> np.ndarray:
    """Return residuals or errors at points, NaN outside of the domain."""
    inside = inside_domain(solution.problem, x)
    found = _residual_or_error(solution, x[inside], reference)
    values = np.full((len(x), found.shape[1]), np.nan)
    values[inside] = found
    return values


def _residual_or_error(solution: Solved, x: np.ndarray, reference: Reference | None) -> np.ndarray:
    if reference is None:
        return solution.residual(x)
    try:
        return solution(x) - reference_values(reference, x, solution.problem)[1]
    except (ValueError, IndexError):  # the reference has values at its own points only
        return solution.residual(x)


def _title(solution: Solved, reference: Reference | None) -> str:
    if reference is not None:
        return f"|error|, relative L2 {percent(solution.error(reference))}"
    estimate = solution.estimate
    return "|residual|" + ("" if estimate is None else f", estimated error {percent(estimate)}")


def show(ax: Axes, found: Grid, values: np.ndarray, time: int | None, colours: str, limits: Any = (None, None)) -> None:
    """Draw one map, with time to the right."""
    (first, x), (second, y) = found.axes.items()
    turned = time == 1 and len(found.axes) == 2 and not found.held
    if turned:
        (first, x), (second, y), values = (second, y), (first, x), values.T
    drawn = ax.pcolormesh(x, y, values.T, cmap=colours, shading="gouraud" if np.isfinite(values).all() else "nearest",
                          rasterized=True, vmin=limits[0], vmax=limits[1])  # fmt: skip
    ax.set(xlabel=first, ylabel=second)
    ax.set_aspect("auto" if turned or time == 1 else "equal")
    assert ax.figure is not None
    beyond = limits[1] is not None and float(np.nanmax(values)) > limits[1]
    ax.figure.colorbar(drawn, ax=ax, shrink=0.9, extend="max" if beyond else "neither")
