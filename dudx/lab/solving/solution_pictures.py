"""Pictures of solutions in one, two, three and more inputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.tri import Triangulation

from dudx.errors import InputError, percent
from dudx.lab import file_formats
from dudx.lab.plots import COLOURS, ERROR_MAP, FIELD_MAP, STYLE, check_picture
from dudx.lab.solving.grids import Grid, Quantities, Solved, grid, inside_domain
from dudx.lab.solving.values import reference_values

Reference = Callable[..., Any]
#: The coordinates of a deformed grid, and the factor of its displacements.
Shape = tuple[np.ndarray, np.ndarray, float]
_FINE, _COARSE = 401, 151


def picture(
    solution: Solved,
    path: Path | None,
    reference: Reference | None = None,
    of: Quantities | None = None,
    arrows: Sequence[str] = (),
    deformed: Sequence[str] = (),
) -> Figure:
    """Draw each unknown function, and beside it the residual or the error; or expressions; see `Solution.plot`."""
    if path is not None:
        check_picture(path)
    problem = solution.problem
    one = len(problem.inputs) == 1
    for what, names in (("Arrows", arrows), ("Displacements", deformed)):
        if names and (one or len(names) != 2 or any(name not in problem.names for name in names)):
            raise InputError(
                f"{what} are two of the unknown functions {', '.join(problem.names)}, in two dimensions; got {names!r}."
            )
    found = grid(solution, _FINE if one else _COARSE, {} if one else _held(solution), of)
    shape = _displaced(found, _vectors(solution, found, deformed)) if deformed else None
    with mpl.rc_context(STYLE):
        if of is None:
            rows, columns = (1 if one else problem.outputs), 2
        else:
            rows, columns = (1, 1) if one else (math.ceil(len(found.values) / 2), min(2, len(found.values)))
        figure = Figure(figsize=(5 * columns, 0.6 + 3.3 * rows), layout="constrained")
        axes = figure.subplots(rows, columns, squeeze=False)
        if one:
            curve_panels(axes[0], solution, found, reference if of is None else None)
        elif of is None:
            map_panels(axes, solution, found, reference, shape)
        else:
            _expression_panels(axes.reshape(-1), solution, found, shape)
        for ax in (axes[:, 0] if of is None else axes.reshape(-1)[: len(found.values)]) if arrows else ():
            _streamlines(ax, found, _vectors(solution, found, arrows))
        few = list(found.held.items())[:3] if not one else []
        where = ", ".join(f"{name} = {value:.3g}" for name, value in few)
        shown = f", {where}{', …' if len(found.held) > 3 else ''}" if where else ""
        figure.suptitle(f"{problem.title}{shown}")
        if path is not None:
            with file_formats.atomic(path) as temporary:
                figure.savefig(temporary, format=path.suffix.removeprefix("."))
    return figure


def curve_panels(axes: Any, solution: Solved, found: Grid, reference: Reference | None) -> None:
    """Draw curves in one variable, with measured values, and residuals or errors if there is a second panel."""
    problem = solution.problem
    (x,) = found.axes.values()
    for number, (name, values) in enumerate(found.values.items()):
        axes[0].plot(x, values, color=COLOURS[number % len(COLOURS)], label=name)
    for points, given in _measured(solution):
        for name, values in given.items():
            if name in found.values:
                colour = COLOURS[list(found.values).index(name) % len(COLOURS)]
                axes[0].plot(points[:, 0], values, ".", color=colour, label=f"{name}, data")
    axes[0].legend()
    axes[0].set(xlabel=problem.inputs[0], title="solution")
    if len(axes) > 1:
        errors = _beside(solution, x[:, None], reference)
        for number in range(errors.shape[1]):
            axes[1].semilogy(x, np.abs(errors[:, number]).clip(1e-16), color=COLOURS[number % len(COLOURS)])
        axes[1].set(xlabel=problem.inputs[0], title=_title(solution, reference))


def map_panels(axes: Any, solution: Solved, found: Grid, reference: Reference | None, shape: Shape | None) -> None:
    """Draw maps over the first two inputs; time is held at its end, other inputs at their middle."""
    problem = solution.problem
    errors = _beside(solution, _points(solution, found), reference)
    for number, (name, values) in enumerate(found.values.items()):
        ax = axes[number][0]
        show(ax, found, values, problem.time, FIELD_MAP, without_outliers(values), shape)
        ax.set_title(name if shape is None else f"{name}, displacements × {shape[2]:.3g}")
        if not found.held:
            for points, given in _measured(solution):
                if name in given:
                    first, second = (1, 0) if problem.time == 1 else (0, 1)
                    ax.plot(points[:, first], points[:, second], ".", color="white", markersize=3, markeredgecolor="k",
                            markeredgewidth=0.4)  # fmt: skip
        column = errors[:, min(number, errors.shape[1] - 1)]
        beside = np.where(np.isnan(values), np.nan, np.abs(column).reshape(values.shape))
        show(axes[number][1], found, beside, problem.time, ERROR_MAP, (0.0, without_outliers(beside)[1]))
        axes[number][1].set_title(_title(solution, reference) if number == 0 else "")


def _expression_panels(axes: Any, solution: Solved, found: Grid, shape: Shape | None) -> None:
    """Draw a map per expression."""
    for ax, (name, values) in zip(axes, found.values.items(), strict=False):
        show(ax, found, values, solution.problem.time, FIELD_MAP, without_outliers(values), shape)
        ax.set_title(name if shape is None else f"{name}, displacements × {shape[2]:.3g}")
    for ax in axes[len(found.values) :]:
        ax.set_visible(False)


def _vectors(solution: Solved, found: Grid, names: Sequence[str]) -> np.ndarray:
    """Return two unknown functions on a grid, (2, n, n), NaN outside of the domain."""
    x = _points(solution, found)
    inside, values = inside_domain(solution.problem, x), np.full((len(x), 2), np.nan)
    values[inside] = solution(x[inside])[:, [solution.problem.names.index(name) for name in names]]
    return values.T.reshape(2, *next(iter(found.values.values())).shape)


def _streamlines(ax: Axes, found: Grid, flow: np.ndarray) -> None:
    """Draw streamlines over a map."""
    x, y = found.axes.values()
    ax.streamplot(x, y, flow[0].T, flow[1].T, color="white", linewidth=0.6, density=1.1, arrowsize=0.6)
    ax.set(xlim=(x[0], x[-1]), ylim=(y[0], y[-1]))


def _displaced(found: Grid, moved: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """Return the deformed grid, and the factor that makes the largest displacement a tenth of its size."""
    x, y = np.meshgrid(*found.axes.values(), indexing="ij")
    factor = 0.1 * float(max(np.ptp(x), np.ptp(y))) / max(float(np.nanmax(np.abs(moved))), 1e-300)
    u, v = np.nan_to_num(factor * moved)
    return x + u, y + v, factor


def _triangles_of(shape: Shape, values: np.ndarray) -> Triangulation:
    """Return two triangles per cell of a deformed grid, without the cells outside of the domain."""
    number = np.arange(values.size).reshape(values.shape)
    a, b, c, d = (part.reshape(-1) for part in (number[:-1, :-1], number[1:, :-1], number[1:, 1:], number[:-1, 1:]))
    triangles = np.concatenate([np.stack([a, b, c], axis=1), np.stack([a, c, d], axis=1)])
    inside = np.isfinite(values.reshape(-1))[triangles].all(axis=1)
    return Triangulation(shape[0].reshape(-1), shape[1].reshape(-1), triangles[inside])


def _measured(solution: Solved) -> list[tuple[np.ndarray, dict[str, np.ndarray]]]:
    """Return the points of data and the values of unknown functions that are given there."""
    names = solution.problem.names
    return [
        (
            one.points.double().cpu().numpy(),
            {key: value.double().cpu().numpy() for key, value in one.given.items() if key in names},
        )
        for one in solution.problem.conditions.data
    ]


def without_outliers(values: np.ndarray) -> tuple[float | None, float | None]:
    """Return limits of a map's colours if a few outliers, as at a singular corner, would hide all other values."""
    finite = values[np.isfinite(values)]
    if not finite.size:
        return None, None
    low, high = (float(value) for value in np.quantile(finite, (0.01, 0.99)))
    least, most, spread = float(finite.min()), float(finite.max()), high - low
    return (low if low - least > spread > 0 else None), (high if most - high > spread > 0 else None)


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


def show(
    ax: Axes,
    found: Grid,
    values: np.ndarray,
    time: int | None,
    colours: str,
    limits: tuple[float | None, float | None] = (None, None),
    shape: Shape | None = None,
) -> None:
    """Draw one map, with time to the right, or on a deformed shape."""
    (first, x), (second, y) = found.axes.items()
    turned = time == 1 and len(found.axes) == 2 and not found.held
    if turned:
        (first, x), (second, y), values = (second, y), (first, x), values.T
    how: dict[str, Any] = {"cmap": colours, "rasterized": True, "vmin": limits[0], "vmax": limits[1]}
    if shape is None:
        smooth = "gouraud" if np.isfinite(values).all() else "nearest"
        drawn: Any = ax.pcolormesh(x, y, values.T, shading=smooth, **how)
    else:
        drawn = ax.tripcolor(_triangles_of(shape, values), np.nan_to_num(values).reshape(-1), shading="gouraud", **how)
    ax.set(xlabel=first, ylabel=second)
    ax.set_aspect("auto" if turned or time == 1 else "equal")
    assert ax.figure is not None
    below = limits[0] is not None and float(np.nanmin(values)) < limits[0]
    above = limits[1] is not None and float(np.nanmax(values)) > limits[1]
    extend = "both" if below and above else "min" if below else "max" if above else "neither"
    ax.figure.colorbar(drawn, ax=ax, shrink=0.9, extend=extend)
