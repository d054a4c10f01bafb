"""Pictures of runs in one style: colour-blind safe, labelled, with holes left white."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import torch
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.mathtext import MathTextParser
from matplotlib.tri import Triangulation

from dudx.errors import InputError, percent
from dudx.lab import file_formats
from dudx.lab.problems import Problem, problems
from dudx.lab.problems import problem as problem_named
from dudx.lab.problems.geometry import Cylinder, Domain
from dudx.lab.run.folder import stored_settings
from dudx.lab.run.records import METRICS, PREDICTION, SCORES, read_calibrations, read_metrics

# Okabe and Ito's palette, distinguishable with every common form of colour blindness.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
FIELD_MAP, ERROR_MAP = "viridis", "magma"
STYLE: dict[Any, Any] = {
    "figure.dpi": 120,
    "savefig.dpi": 160,
    "font.size": 10,
    "axes.grid": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.prop_cycle": cycler(color=COLOURS),
    "legend.frameon": False,
    "lines.linewidth": 1.6,
}


@contextmanager
def figure(path: Path, columns: int, size: tuple[float, float]) -> Iterator[Sequence[Axes]]:
    """Yield a row of axes in the common style and write them to `path`, whole or not at all."""
    check_picture(path)
    with mpl.rc_context(STYLE):
        drawn = Figure(figsize=size, layout="constrained")
        yield np.atleast_1d(drawn.subplots(1, columns)).tolist()
        with file_formats.atomic(path) as temporary:
            drawn.savefig(temporary, format=path.suffix.removeprefix("."))


def check_picture(path: Path) -> None:
    """Raise if a picture cannot be written to this path."""
    known = Figure().canvas.get_supported_filetypes()
    if path.suffix.removeprefix(".") not in known:
        raise InputError(f"Pictures cannot be written as {path.suffix!r}; choose one of {', '.join(sorted(known))}.")
    if not path.parent.is_dir():
        raise InputError(f"Cannot write {str(path)!r}: there is no folder {str(path.parent)!r}.")


def plot_run(folder: Path) -> list[Path]:
    """Draw all pictures of a run: the solution, the training curves and, where steps were searched, the search.

    No user code is imported, so a folder from an untrusted source is safe to open. For a problem of the user's own,
    only the pictures that need nothing but the files are drawn.
    """
    settings = stored_settings(folder, f"There is no run in {str(folder)!r}: config.toml cannot be read.")
    return draw(folder, problem_named(settings.problem) if settings.problem in problems() else None, settings.problem)


def draw(folder: Path, problem: Problem | None, name: str) -> list[Path]:
    """Draw the pictures of a run; without the problem, only those that do not need it."""
    drawn = []
    if problem is not None and (folder / PREDICTION).exists():
        arrays = _prediction(folder / PREDICTION, problem)
        dimension, in_time = len(problem.inputs), isinstance(problem.domain, Cylinder)
        if dimension == 1:
            drawn.append(curve(folder / "solution.png", problem, **arrays))
        elif dimension == 2 or (dimension == 3 and in_time):  # more dimensions have no picture
            drawn.append(solution(folder / "solution.png", problem, **arrays))
    if rows := _metrics(folder):
        drawn.append(training_curves(folder / "training.png", name if problem is None else problem.title, rows))
    if searches := read_calibrations(folder):
        drawn.append(calibration(folder / "calibration.png", searches))
    return drawn


def _prediction(path: Path, problem: Problem) -> dict[str, np.ndarray]:
    """Read the arrays of a prediction and check that they can be drawn."""
    found = file_formats.read_arrays(path)
    names = ("points", "prediction", "reference")
    fault = next((f"there is no array {name!r}" for name in names if name not in found), None)
    if fault is None:
        points = found["points"]
        shapes = {"points": (len(problem.inputs),), "prediction": (problem.outputs,), "reference": (problem.outputs,)}
        for name in names:
            values = found[name]
            if values.dtype.kind != "f" or values.ndim != 2 or values.shape[1:] != shapes[name]:
                fault = f"the array {name!r} is of type {values.dtype} and shape {values.shape}"
            elif len(values) != len(points) or len(values) < 3:
                fault = f"the array {name!r} has {len(values)} rows for {len(points)} points"
            elif name != "prediction" and not np.isfinite(values).all():
                fault = f"the array {name!r} is not finite"
            if fault:
                break
    if fault:
        raise file_formats.DamagedError(f"{str(path)!r} is damaged: {fault}.")
    return {name: found[name] for name in names}


def _metrics(folder: Path) -> list[dict[str, str]]:
    """Read the rows of a run's metrics and check that they are numbers."""
    path = folder / METRICS
    rows = read_metrics(folder)
    columns = list(rows[0]) if rows else path.read_text(encoding="utf-8").strip().split(",")
    for name in ("epoch", "loss", "learning_rate", *SCORES):
        if name not in columns:
            raise file_formats.DamagedError(f"{str(path)!r} is damaged: it has no column {name!r}.")
    for line, row in enumerate(rows, 2):
        for name, value in row.items():
            if name != "step" and not _is_number(value) and (value or name in ("epoch", "loss")):
                raise file_formats.DamagedError(f"{str(path)!r} is damaged: {name} is {value!r} in row {line}.")
    return rows


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _readable(text: str) -> str:
    """Return a text for matplotlib, with dollar signs escaped if it is not a valid formula."""
    try:
        MathTextParser("path").parse(text)
    except (ValueError, RuntimeError):
        return text.replace("$", r"\$")
    return text


def curve(path: Path, problem: Problem, points: np.ndarray, prediction: np.ndarray, reference: np.ndarray) -> Path:
    """Draw prediction and reference in one variable, and the error beside them."""
    order = np.argsort(points[:, 0])
    x, u, true = points[order, 0], prediction[order, 0], reference[order, 0]
    error = float(np.linalg.norm(u - true) / np.linalg.norm(true))
    with figure(path, 2, (10, 3.6)) as (values, errors):
        values.plot(x, true, color=COLOURS[6], label="reference")
        values.plot(x, u, color=COLOURS[1], linestyle="--", label="prediction")
        values.legend()
        values.set(xlabel=_readable(problem.inputs[0]), title=_readable(problem.title))
        errors.semilogy(x, np.abs(u - true), color=COLOURS[0])
        errors.set(xlabel=_readable(problem.inputs[0]), title=f"|error|, relative L2 {percent(error)}")
    return path


def solution(path: Path, problem: Problem, points: np.ndarray, prediction: np.ndarray, reference: np.ndarray) -> Path:
    """Draw prediction, reference and error on the true geometry; in two space dimensions at the last time."""
    over_time = isinstance(problem.domain, Cylinder) and problem.domain.space.dimension == 1
    when = ""
    if points.shape[1] == 3:
        last = points[:, 2] == points[:, 2].max()
        when = f", t = {points[last][0, 2]:g}"
        points, prediction, reference = points[last][:, :2], prediction[last], reference[last]
    domain = problem.domain.space if isinstance(problem.domain, Cylinder) and not over_time else problem.domain
    mesh = _triangles(points, domain)
    u, true = prediction[:, 0], reference[:, 0]
    low, high = float(true.min()), float(true.max())
    width, height = np.ptp(points, axis=0)
    aspect = 1.0 if over_time else height / width
    error = float(np.linalg.norm(u - true) / np.linalg.norm(true))
    with figure(path, 3, (11, 0.6 + 3.0 * min(aspect, 1.6))) as axes:
        panels = [
            ("prediction", u, FIELD_MAP, low, high),
            ("reference", true, FIELD_MAP, low, high),
            (f"|error|, relative L2 {percent(error)}", np.abs(u - true), ERROR_MAP, 0.0, None),
        ]
        for ax, (title, values, colours, least, most) in zip(axes, panels, strict=True):
            drawn = ax.tripcolor(mesh, values, shading="gouraud", cmap=colours, vmin=least, vmax=most, rasterized=True)
            ax.set_title(title)
            ax.set_aspect("auto" if over_time else "equal")
            x_name, y_name = (problem.inputs[1], problem.inputs[0]) if over_time else problem.inputs[:2]
            ax.set(xlabel=_readable(x_name), ylabel=_readable(y_name))
            assert ax.figure is not None
            ax.figure.colorbar(drawn, ax=ax, shrink=0.85)
        assert axes[0].figure is not None
        axes[0].figure.suptitle(_readable(f"{problem.title}{when}"))  # type: ignore[union-attr]
    return path


def _triangles(points: np.ndarray, domain: Domain) -> Triangulation:
    """Return triangles between the points, without those whose centre lies outside the domain."""
    over_time = isinstance(domain, Cylinder)
    mesh = Triangulation(*(points[:, ::-1] if over_time else points).T)
    centres = points[mesh.triangles].mean(axis=1)
    inside = domain.contains(torch.from_numpy(centres.astype(np.float64))).numpy()
    mesh.set_mask(~inside)
    return mesh


def training_curves(path: Path, title: str, rows: Sequence[Mapping[str, str]]) -> Path:
    """Draw the terms of the loss, and the error against the reference, over the epochs."""
    with figure(path, training_columns(rows), (10, 3.6)) as axes:
        training_panels(axes, _readable(title), rows)
    return path


def training_columns(rows: Sequence[Mapping[str, str]]) -> int:
    """Return the number of panels: one for the losses, and one for errors if there are any."""
    return 1 + any(row.get("l2_relative") for row in rows)


def training_panels(axes: Sequence[Axes], title: str, rows: Sequence[Mapping[str, str]]) -> None:
    """Draw the terms of the loss into the first of these axes, and the errors into the second if there is one."""
    epochs = np.array([float(row["epoch"]) for row in rows])
    columns = list(rows[0])
    for name in columns[columns.index("loss") : columns.index("learning_rate")]:
        width = 2.2 if name == "loss" else 1.2
        axes[0].semilogy(epochs, _numbers(rows, name), linewidth=width, label=_readable(name))
    axes[0].set(xlabel="epoch", ylabel="loss", title=title)
    axes[0].legend()
    for errors in axes[1:]:
        for name, label in (("l2_relative", "relative L2"), ("max_error", "max error")):
            values = _numbers(rows, name)
            known = ~np.isnan(values)
            errors.semilogy(epochs[known], values[known], marker="o", markersize=3, label=label)
        errors.set(xlabel="epoch", ylabel="error against the reference")
        errors.legend()


def _numbers(rows: Sequence[Mapping[str, str]], name: str) -> np.ndarray:
    return np.array([float(row.get(name) or "nan") for row in rows])


def calibration(path: Path, searches: Sequence[Mapping[str, Any]]) -> Path:
    """Draw the error of finite differences against the step size, one line per search, with the minimum marked."""
    orders = sorted({search["order"] for search in searches})
    with figure(path, len(orders), (4.6 * len(orders), 3.6)) as axes:
        for ax, order in zip(axes, orders, strict=True):
            of_order = [search for search in searches if search["order"] == order]
            shades = mpl.colormaps["cividis"](np.linspace(0, 0.85, len(of_order)))
            for number, (shade, search) in enumerate(zip(shades, of_order, strict=True)):
                label = f"epoch {search['epoch']}" if len(of_order) > 1 else "RMSE"
                # Label only the first and the last of many searches; the shade runs from one to the other.
                named = len(of_order) <= 8 or number in (0, len(of_order) - 1)
                ax.loglog(search["steps"], np.array(search["rmse"], float), color=shade, label=label if named else None)
                if len(of_order) == 1:
                    errors = np.array(search["max_error"], float)
                    ax.loglog(search["steps"], errors, color=COLOURS[1], linestyle="--", label="max error")
                ax.plot(search["step"], np.nanmin(np.array(search["rmse"], float)), "o", color=shade, markersize=5)
            ax.set(xlabel="step ε", ylabel="error of the derivative", title=f"order {order}")
            ax.legend()
    return path
