"""Figure 3: error of finite differences against the step in three floating-point formats."""

from __future__ import annotations

import math
import statistics
from pathlib import Path

from dudx.lab import plots
from reproduction.analysis.claims import Claim, Ratio
from reproduction.analysis.figures import notice
from reproduction.analysis.published import published
from reproduction.experiment import Experiment, ExperimentResults
from reproduction.measurements import step_curves

SHOWN_FORMATS = ("fp64", "fp32", "bf16")
#: Range that counts as "of order of a few".
FEW = (1.0, 10.0)


def _figure(results: ExperimentResults, path: Path) -> None:
    if reason := step_curves.failure(results, SHOWN_FORMATS):
        return notice(path, reason)
    curves = step_curves.curves(results)
    optima = {(row["format"], row["order"]): row for row in step_curves.optima(results) if row["seed"] == 0}
    with plots.figure(path, 2, (11, 4)) as axes:
        for ax, order, name in zip(axes, step_curves.ORDERS, ("first", "second"), strict=True):
            for colour, format in zip(plots.COLOURS, SHOWN_FORMATS, strict=False):
                steps, rmse = (curves[format][str(order)][key] for key in ("steps", "rmse"))
                row = optima[format, order]
                label = f"{format.upper()}: ε = {row['step']:.1e}, C{'₁₂'[order - 1]} = {row['constant']:.1f}"
                ax.loglog(steps, rmse, color=colour, label=label)
                ax.axvline(row["step"], color=colour, linestyle="--", linewidth=1)
            ax.set(xlabel="step ε", ylabel="RMSE of the derivative", title=f"{name} derivative")
            ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.18), fontsize=9)


def _claims(results: ExperimentResults) -> list[Claim]:
    rows = step_curves.optima(results)
    found = {name: values for name, values in step_curves.constants(rows, 1).items() if name in SHOWN_FORMATS}
    low, high = published("fig-3")["constant"]
    words = f"C₁ from {low:g} to {high:g}: of order of a few"
    text = "The best step for first derivatives is C₁ ε_m^⅓ in FP64, FP32 and BF16"
    if not all(found.values()):
        return [Claim(text, words, "undecided", "not every format could be measured")]
    means = {name: math.exp(statistics.fmean(map(math.log, values))) for name, values in found.items()}
    spans = {name: f"{means[name]:.1f} ({min(values):.1f} to {max(values):.1f})" for name, values in found.items()}
    few = [FEW[0] <= mean <= FEW[1] for mean in means.values()]
    evidence = "C₁, geometric mean and range over networks: " + ", ".join(f"{k.upper()} {v}" for k, v in spans.items())
    verdict = "held" if all(few) else "held in part" if any(few) else "did not hold"
    evidence = f"{evidence}; a few is taken to be {FEW[0]:g} to {FEW[1]:g}"
    every = [value for values in found.values() for value in values]
    middle = math.exp(statistics.fmean(map(math.log, every)))
    ratio = Ratio("C₁ over all formats and networks", middle, min(every), max(every), math.sqrt(low * high))
    return [Claim(text, words, verdict, evidence, ratio=ratio)]


EXPERIMENT = Experiment(
    "fig-3",
    "Error against step by floating-point format",
    measurements=lambda profile: step_curves.measurements(profile, SHOWN_FORMATS),
    figure=_figure,
    note="Published: the optima imply a C₁ of 2 to 3.",
    claims=_claims,
    position=4,
)
