"""Table 1: the best step by floating-point format, predicted and measured."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dudx.lab.plots import COLOURS
from reproduction.analysis.figures import panels
from reproduction.analysis.published import published
from reproduction.analysis.table_figures import TableRow, draw_rows
from reproduction.analysis.tables import Table
from reproduction.experiment import Experiment, ExperimentResults
from reproduction.measurements import step_curves


def _tables(results: ExperimentResults) -> list[Table]:
    rows = step_curves.optima(results)
    lines = []
    for name, theirs in published("table-1").items():
        mine = [row for row in rows if row["format"] == name]
        ok = [row for row in mine if row["status"] == "ok"]
        epsilon = ok[0]["epsilon"] if ok else None
        line = [name.upper(), str(theirs["bits"]), _short(epsilon), _short(theirs["epsilon"])]
        for order, key in ((1, "first"), (2, "second")):
            steps = [row["step"] for row in ok if row["order"] == order]
            factor = [row["constant"] for row in ok if row["order"] == order]
            theory = epsilon ** (1 / (order + 2)) if epsilon else None
            line += [
                _short(theory),
                _short(theirs[key]),
                _short(_mean(steps)),
                f"{_mean(factor):.2f}" if factor else "-",
            ]
        lines.append([*line, f"{len(ok) // 2} of {len(mine) // 2}"])
    columns = ["format", "mantissa bits", "ε_m", "published"]
    for power in ("⅓", "¼"):
        columns += [f"ε_m^{power}", "published", "measured optimum", "factor C"]
    note = (
        "Measured: the step with the smallest error of central differences of first (ε_m^⅓) and second derivatives "
        "(ε_m^¼) on a fresh tanh network, geometric mean over networks; C is the optimum over the scaling."
    )
    return [
        Table(
            "The scaling ε_m^(1/(k+2)), and the steps at which the error of k-th derivatives is least.",
            [*columns, "networks"],
            lines,
            [note],
        )
    ]


def _mean(values: list[float]) -> float:
    return float(np.exp(np.mean(np.log(values)))) if values else float("nan")


def _short(value: float | None) -> str:
    return "-" if value is None or np.isnan(value) else f"{value:.1e}"


def _figure(results: ExperimentResults, path: Path) -> None:
    """Measured optima of first and second derivatives beside the scaling that the paper prints."""
    rows = [row for row in step_curves.optima(results) if row["status"] == "ok"]
    with panels(path, 1, 2, (10, 3.2)) as (figure, (axes,)):
        for ax, order, key, name in zip(axes, (1, 2), ("first", "second"), ("⅓", "¼"), strict=True):
            lines = [
                TableRow(
                    format.upper(),
                    COLOURS[order - 1],
                    "o",
                    [row["step"] for row in rows if (row["format"], row["order"]) == (format, order)],
                    [theirs[key]],
                )
                for format, theirs in published("table-1").items()
            ]
            draw_rows(ax, lines, "step")
            ax.set_title(f"{key} derivative: step and ε_m^{name}")
        words = "filled: best step, mean ± standard deviation and a dot per network; ◇: published scaling"
        figure.supxlabel(words, fontsize="small")


EXPERIMENT = Experiment(
    "table-1",
    "The best step by floating-point format",
    measurements=step_curves.measurements,
    tables=_tables,
    figure=_figure,
    position=2,
)
