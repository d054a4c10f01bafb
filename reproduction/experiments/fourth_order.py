"""Open question: is the best step for fourth derivatives the sixth root of the precision, and does a plate train?"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

import dudx
from dudx.errors import percent
from dudx.lab import plots
from dudx.lab.run.networks import MLP
from reproduction.analysis.tables import Table, scientific
from reproduction.experiment import Experiment, ExperimentResults, Measurement
from reproduction.experiments import methods
from reproduction.measurements import short_training
from reproduction.measurements.compared_methods import METHODS
from reproduction.profile import Profile

DTYPES = ("float32", "float64")
TRAINED = ("ad", "taylor", "fd", "efd", "sfd")
_ORDER, _POINTS = 4, 256


def measure(dtype: str, seed: int, width: int, depth: int) -> dict[str, Any]:
    """Measure the error of fourth differences of a fresh network against the step."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    kind = getattr(torch, dtype)
    network, x = MLP(2, width=width, depth=depth).double(), 2 * torch.rand(_POINTS, 2, dtype=torch.float64) - 1
    found = dudx.find_eps(network.to(kind), x.to(kind), _ORDER)
    return {
        "status": "ok",
        "step": found.step,
        "steps": [float(step) for step in found.steps],
        "curve": [float(value) for value in found.rmse],
    }


def _measurements(profile: Profile) -> list[Measurement]:
    plan = short_training.plan(profile)
    sizes = {"width": plan["width"], "depth": plan["depth"]}
    curves = [
        Measurement(f"fourth-{dtype}-{seed}", f"{__name__}:measure", {"dtype": dtype, "seed": seed, **sizes})
        for dtype in DTYPES
        for seed in range(profile.methods.formats)
    ]
    seeds, trained = range(profile.methods.seeds), short_training.some(TRAINED, profile.methods.methods)
    return curves + [methods.training("plate", method, seed, plan) for seed in seeds for method in trained]


def _curves(results: ExperimentResults) -> dict[str, list[Mapping[str, Any]]]:
    """Error curves of the networks that were measured, by number format."""
    ok = [(a, result) for a, result in results.measured if "method" not in a and result["status"] == "ok"]
    return {dtype: [result for a, result in ok if a["dtype"] == dtype] for dtype in DTYPES}


def _tables(results: ExperimentResults) -> list[Table]:
    found = {dtype: [curve["step"] for curve in curves] for dtype, curves in _curves(results).items()}
    if not all(found.values()):
        return [Table("No step was found.", ["format"], []), _plate(methods.rows(results))]
    means = {dtype: math.exp(statistics.fmean(map(math.log, steps))) for dtype, steps in found.items()}
    eps = {dtype: torch.finfo(getattr(torch, dtype)).eps for dtype in DTYPES}
    lines = [
        [dtype, scientific(eps[dtype]), f"{eps[dtype] ** (1 / 6):.2e}", f"{means[dtype]:.2e}",
         f"{means[dtype] / eps[dtype] ** (1 / 6):.2f}", str(len(found[dtype]))]
        for dtype in DTYPES
    ]  # fmt: skip
    slope = math.log(means["float32"] / means["float64"]) / math.log(eps["float32"] / eps["float64"])
    caption = (
        "The step at which fourth differences of accuracy 2 are best on fresh networks, geometric mean; between the "
        f"two formats it scales with the power {slope:.3f} of ε_m, and 1/6 is {1 / 6:.3f}."
    )
    columns = ["format", "ε_m", "ε_m^(1/6)", "measured optimum", "factor C", "networks"]
    return [Table(caption, columns, lines), _plate(methods.rows(results))]


def _plate(rows: list[dict[str, Any]]) -> Table:
    lines = []
    for method in TRAINED:
        errors = methods.by_seed(rows, method=method)
        mine = [row for row in rows if row["method"] == method]
        shown = ", ".join(percent(errors[seed]) for seed in sorted(errors)) or (
            mine[0]["status"] if mine else "not run"
        )
        lines.append([METHODS[method].label, shown, str(len(mine))])
    caption = "The clamped plate in single precision: relative L2 error of each seed."
    return Table(caption, ["method", "errors", "seeds"], lines, name="plate")


def _figure(results: ExperimentResults, path: Path) -> None:
    with plots.figure(path, 1, (6, 4)) as (axes,):
        for colour, (dtype, curves) in zip(plots.COLOURS, _curves(results).items(), strict=False):
            for number, curve in enumerate(curves):
                label = None if number else dtype
                axes.loglog(curve["steps"], curve["curve"], color=colour, linewidth=1, label=label)
            best = torch.finfo(getattr(torch, dtype)).eps ** (1 / 6)
            axes.axvline(best, color=colour, linestyle="--", linewidth=1)
        axes.set(xlabel="step", ylabel="RMSE of the fourth derivative", title="dashed: the sixth root of ε_m")
        axes.legend()


EXPERIMENT = Experiment(
    "fourth-order",
    "Fourth derivatives: the best step, and a clamped plate in single precision",
    measurements=_measurements,
    tables=_tables,
    figure=_figure,
    note="A question that the paper leaves open.",
    position=21,
)
