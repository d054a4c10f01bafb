"""The error of finite differences against the step in single precision."""

from __future__ import annotations

from pathlib import Path

from dudx.lab import plots
from reproduction.experiments import curves
from reproduction.experiments.base import CsvRows, Experiment, Found, NpzArrays
from reproduction.experiments.data import Data
from reproduction.experiments.pictures import notice


def _collect(found: Found) -> dict[str, CsvRows | NpzArrays]:
    return {curves.OPTIMA: curves.optima_rows(found), "curves.npz": curves.arrays(found)}


def _figure(data: Data, path: Path) -> None:
    if reason := curves.failure(data, ("fp32",)):
        return notice(path, reason)
    needed = [f"fp32-{order}-{key}" for order in curves.ORDERS for key in ("steps", "rmse", "max_error")]
    arrays = data.arrays("curves.npz", needed)
    with plots.figure(path, 2, (10, 3.8)) as axes:
        for ax, order, name in zip(axes, curves.ORDERS, ("first", "second"), strict=True):
            steps, rmse, most = (arrays[f"fp32-{order}-{key}"] for key in ("steps", "rmse", "max_error"))
            ax.loglog(steps, rmse, label="RMSE")
            ax.loglog(steps, most, linestyle="--", label="max")
            least = int(rmse.argmin())
            ax.axvline(steps[least], color="0.6", linewidth=1, linestyle=":")
            ax.plot(steps[least], rmse[least], "o", color=plots.COLOURS[0], label=f"optimum {steps[least]:.1e}")
            ax.set(xlabel="step ε", ylabel="error of the derivative", title=f"{name} derivative, FP32")
            ax.legend()


EXPERIMENT = Experiment(
    "fig-2",
    "Error against step, FP32",
    _collect,
    measurements=lambda profile: curves.measurements(profile, ("fp32",)),
    figure=_figure,
    note="Published: the same shape, without numbers.",
    place=3,
)
