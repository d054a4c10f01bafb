"""An open question: what sFD does on coordinates that are not rescaled, where some trainings collapse.

Many short trainings of the heat equation in its own coordinates, and how their errors are distributed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import stats

from dudx.lab import plots
from dudx.lab.paper.experiments import methods, small
from dudx.lab.paper.experiments.base import CsvRows, Experiment, Found, Measurement
from dudx.lab.paper.experiments.data import Data
from dudx.lab.paper.experiments.profile import Profile
from dudx.lab.paper.experiments.tables import Table, percent

TRAINED = ("ad", "fd", "sfd")
#: A solution whose spread is below this share of the true one has collapsed.
COLLAPSED = 0.1
_CALIBRATED = 100


def measure(method: str, seed: int, epochs: int, width: int, depth: int, **sizes: int) -> dict[str, Any]:
    """A short training by Adam, and how far its solution spreads compared with the true one."""
    torch.set_num_threads(1)
    task = small.task("heat", seed, sizes, torch.float32)
    model = small.network(task, seed, width, depth, torch.float32, rescale=False)
    engine = methods.METHODS[method][1](task, torch.Generator().manual_seed(small.FRESH + seed))
    result = small.train(task, model, engine, epochs, _CALIBRATED, small.adam)
    with torch.no_grad():
        return {**result, "spread": float(model(task.points).double().std() / task.values.std())}


def _measurements(profile: Profile) -> list[Measurement]:
    plan = small.plan(profile)
    sizes = {key: plan[key] for key in ("width", "depth", "batch", "boundary_batch", "initial_batch")}
    return [
        Measurement(
            f"outcomes-{method}-{seed}",
            f"{__name__}:measure",
            {"method": method, "seed": seed, "epochs": profile.methods.short, **sizes},
        )
        for seed in range(profile.methods.outcomes)
        for method in small.some(TRAINED, profile.methods.methods)
    ]


def _collect(found: Found) -> dict[str, CsvRows]:
    keys = ("error", "spread")
    return {
        "outcomes.csv": [
            {
                "method": m.arguments["method"],
                "seed": m.arguments["seed"],
                "status": result["status"],
                **{key: result.get(key) for key in keys},
            }
            for m, result in found.measured
        ]
    }


def _read(data: Data) -> dict[str, list[dict[str, Any]]]:
    rows = data.rows("outcomes.csv", ("method", "status"), ("seed", "error", "spread"))
    return {method: [row for row in rows if row["method"] == method] for method in TRAINED}


def _tables(data: Data) -> list[Table]:
    found, lines = _read(data), []
    for method, rows in found.items():
        errors = np.array([row["error"] for row in rows if row["status"] == "ok"])
        collapsed = sum(row["status"] != "ok" or row["spread"] < COLLAPSED for row in rows)
        quantiles = (
            [percent(float(q)) for q in np.quantile(errors, (0, 0.25, 0.5, 0.75, 1))] if len(errors) else ["-"] * 5
        )
        lines.append([methods.METHODS[method][0], *quantiles, f"{collapsed} of {len(rows)}"])
    columns = ["method", "best", "first quarter", "median", "third quarter", "worst", "collapsed"]
    note = f"Collapsed: lost, or spread over less than {percent(COLLAPSED)} of what the true solution does."
    return [Table(_answer(found), columns, lines, [note])]


def _answer(found: dict[str, list[dict[str, Any]]]) -> str:
    """Whether the distribution of errors with sFD is another one than with AD."""
    ad, sfd = ([row["error"] for row in found[method] if row["status"] == "ok"] for method in ("ad", "sfd"))
    if min(len(ad), len(sfd)) < 3:
        return "Too few trainings finished to compare distributions."
    test: Any = stats.ks_2samp(ad, sfd)
    differ = "are not the same" if test.pvalue < 0.05 else "cannot be told apart"
    return (
        f"Heat in its own coordinates: the distributions of errors with sFD and with AD {differ} "
        f"(Kolmogorov-Smirnov, p = {test.pvalue:.2g}, {len(ad)} and {len(sfd)} trainings)."
    )


def _figure(data: Data, path: Path) -> None:
    with plots.figure(path, 1, (6, 4)) as (axes,):
        for colour, (method, rows) in zip(plots.COLOURS, _read(data).items(), strict=False):
            errors = sorted(row["error"] for row in rows if row["status"] == "ok")
            share = [(number + 1) / len(rows) for number in range(len(errors))]
            axes.step(errors, share, where="post", color=colour, label=methods.METHODS[method][0])
        axes.set(
            xlabel="relative L2 error", ylabel="share of trainings with at most that", xscale="log", ylim=(0, 1.02)
        )
        axes.legend()


EXPERIMENT = Experiment(
    "outcomes",
    "sFD on coordinates that are not rescaled: how outcomes are distributed",
    _collect,
    measurements=_measurements,
    tables=_tables,
    figure=_figure,
    note="A question that the paper leaves open.",
    place=24,
)
