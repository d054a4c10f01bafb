"""Table 1: the best step by floating-point format, predicted and measured."""

from __future__ import annotations

import numpy as np

from reproduction.analysis.published import published
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


EXPERIMENT = Experiment(
    "table-1",
    "The best step by floating-point format",
    measurements=step_curves.measurements,
    tables=_tables,
    position=2,
)
