"""Pictures, all in one style: colour-blind safe, labelled, with the holes left white."""

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
from matplotlib.tri import Triangulation

from dudx.errors import InputError
from dudx.lab import storage
from dudx.lab.problems import Problem
from dudx.lab.problems import problem as problem_named
from dudx.lab.problems.geometry import Cylinder, Domain
from dudx.lab.run.metrics import percent
from dudx.lab.run.settings import from_toml

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
    """A row of axes in the common style, written to `path` whole or not at all."""
    kind = path.suffix.removeprefix(".")
    with mpl.rc_context(STYLE):
        drawn = Figure(figsize=size, layout="constrained")
        known = drawn.canvas.get_supported_filetypes()
        if kind not in known:
            raise InputError(
                f"Pictures cannot be written as {path.suffix!r}; choose one of {', '.join(sorted(known))}."
            )
        yield np.atleast_1d(drawn.subplots(1, columns)).tolist()
        with storage.atomic(path) as temporary:
            drawn.savefig(temporary, format=kind)


def plot_run(folder: Path) -> list[Path]:
    """Draw all pictures of a run: the solution, the training curves and, where steps were searched, the search."""
    settings = from_toml(_config(folder), str(folder / "config.toml"))
    problem = problem_named(settings.problem)
    drawn = []
    if (folder / "prediction.npz").exists():
        arrays = storage.read_arrays(folder / "prediction.npz")
        dimension, in_time = len(problem.inputs), isinstance(problem.domain, Cylinder)
        if dimension == 1:
            drawn.append(curve(folder / "solution.png", problem, **arrays))
        elif dimension == 2 or (dimension == 3 and in_time):  # there is no picture of more
            drawn.append(solution(folder / "solution.png", problem, **arrays))
    if rows := storage.read_table(folder / "metrics.csv"):
        drawn.append(training_curves(folder / "training.png", problem.title, rows))
    if searches := storage.read_json(folder / "calibrations.json"):
        drawn.append(calibration(folder / "calibration.png", searches))
    return drawn


def _config(folder: Path) -> str:
    try:
        return (folder / "config.toml").read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"There is no run in {str(folder)!r}: config.toml cannot be read.") from error


def curve(path: Path, problem: Problem, points: np.ndarray, prediction: np.ndarray, reference: np.ndarray) -> Path:
    """Prediction and reference in one variable, and the error beside them."""
    order = np.argsort(points[:, 0])
    x, u, true = points[order, 0], prediction[order, 0], reference[order, 0]
    error = float(np.linalg.norm(u - true) / np.linalg.norm(true))
    with figure(path, 2, (10, 3.6)) as (values, errors):
        values.plot(x, true, color=COLOURS[6], label="reference")
        values.plot(x, u, color=COLOURS[1], linestyle="--", label="prediction")
        values.legend()
        values.set(xlabel=problem.inputs[0], title=problem.title)
        errors.semilogy(x, np.abs(u - true), color=COLOURS[0])
        errors.set(xlabel=problem.inputs[0], title=f"|error|, relative L2 {percent(error)}")
    return path


def solution(path: Path, problem: Problem, points: np.ndarray, prediction: np.ndarray, reference: np.ndarray) -> Path:
    """Prediction, reference and error side by side, on the true geometry; in two space dimensions at the last time."""
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
            ax.set(xlabel=x_name, ylabel=y_name)
            assert ax.figure is not None
            ax.figure.colorbar(drawn, ax=ax, shrink=0.85)
        assert axes[0].figure is not None
        axes[0].figure.suptitle(f"{problem.title}{when}")  # type: ignore[union-attr]
    return path


def _triangles(points: np.ndarray, domain: Domain) -> Triangulation:
    """Triangles between the points, without those whose middle lies outside the domain."""
    over_time = isinstance(domain, Cylinder)
    mesh = Triangulation(*(points[:, ::-1] if over_time else points).T)
    centres = points[mesh.triangles].mean(axis=1)
    inside = domain.contains(torch.from_numpy(centres.astype(np.float64))).numpy()
    mesh.set_mask(~inside)
    return mesh


def training_curves(path: Path, title: str, rows: Sequence[Mapping[str, str]]) -> Path:
    """The parts of the loss, and the error against the reference, over the epochs."""
    epochs = np.array([float(row["epoch"]) for row in rows])
    columns = list(rows[0])
    parts = columns[columns.index("loss") : columns.index("learning_rate")]
    with figure(path, 2, (10, 3.6)) as (losses, errors):
        for name in parts:
            losses.semilogy(epochs, _numbers(rows, name), label=name, linewidth=2.2 if name == "loss" else 1.2)
        losses.set(xlabel="epoch", ylabel="loss", title=title)
        losses.legend()
        for name, label in (("l2_relative", "relative L2"), ("max_error", "max error")):
            values = _numbers(rows, name)
            errors.semilogy(epochs[~np.isnan(values)], values[~np.isnan(values)], marker="o", markersize=3, label=label)
        errors.set(xlabel="epoch", ylabel="error against the reference")
        errors.legend()
    return path


def _numbers(rows: Sequence[Mapping[str, str]], name: str) -> np.ndarray:
    return np.array([float(row[name]) if row[name] else np.nan for row in rows])


def calibration(path: Path, searches: Sequence[Mapping[str, Any]]) -> Path:
    """The error of finite differences against the step, one line a search, the minimum marked."""
    orders = sorted({search["order"] for search in searches})
    with figure(path, len(orders), (4.6 * len(orders), 3.6)) as axes:
        for ax, order in zip(axes, orders, strict=True):
            of_order = [search for search in searches if search["order"] == order]
            shades = mpl.colormaps["cividis"](np.linspace(0, 0.85, len(of_order)))
            for number, (shade, search) in enumerate(zip(shades, of_order, strict=True)):
                label = f"epoch {search['epoch']}" if len(of_order) > 1 else "RMSE"
                # Of many searches only the first and the last are named; the shade runs from one to the other.
                named = len(of_order) <= 8 or number in (0, len(of_order) - 1)
                ax.loglog(search["steps"], search["rmse"], color=shade, label=label if named else None)
                if len(of_order) == 1:
                    ax.loglog(search["steps"], search["max_error"], color=COLOURS[1], linestyle="--", label="max error")
                ax.plot(search["step"], min(search["rmse"]), "o", color=shade, markersize=5)
            ax.set(xlabel="step ε", ylabel="error of the derivative", title=f"order {order}")
            ax.legend()
    return path
