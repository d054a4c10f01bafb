"""Figure 2: error of finite differences against the step, in single precision."""

from __future__ import annotations

from pathlib import Path

from dudx.lab import plots
from reproduction.analysis.figures import notice
from reproduction.experiment import Experiment, ExperimentResults
from reproduction.measurements import step_curves


def _figure(results: ExperimentResults, path: Path) -> None:
    if reason := step_curves.failure(results, ("fp32",)):
        return notice(path, reason)
    curves = step_curves.curves(results)["fp32"]
    with plots.figure(path, 2, (10, 3.8)) as axes:
        for ax, order, name in zip(axes, step_curves.ORDERS, ("first", "second"), strict=True):
            steps, rmse, most = (curves[str(order)][key] for key in ("steps", "rmse", "max_error"))
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
    measurements=lambda profile: step_curves.measurements(profile, ("fp32",)),
    figure=_figure,
    note="Published: the same shape, without numbers.",
    position=3,
)
