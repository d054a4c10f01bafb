"""Open question: does sFD prevent the collapse of trainings on coordinates that are not rescaled?

The paper explains the gain of sFD on Poisson's equation by such collapses. Here are the errors of many short trainings.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import stats

from dudx.errors import percent
from dudx.lab import plots
from reproduction.analysis.figures import engine_style, plain_log
from reproduction.analysis.statistics import compare
from reproduction.analysis.tables import COLLAPSED, Table
from reproduction.experiment import Experiment, ExperimentResults, Measurement
from reproduction.experiments import methods
from reproduction.measurements import short_training
from reproduction.measurements.compared_methods import METHODS
from reproduction.profile import Profile

TRAINED = ("ad", "fd", "sfd")
#: Width and learning rate with which some trainings collapse and some do not; chosen on seeds 0 and 1 with Taylor,
#: which is not compared here.
_WIDTH, _RATE = 32, 5e-3
_CALIBRATED = 500


def measure(method: str, seed: int, epochs: int, width: int, depth: int, **sizes: int) -> dict[str, Any]:
    """Train for a short time by Adam."""
    torch.set_num_threads(1)
    task = short_training.task("poisson", seed, sizes, torch.float32)
    model = short_training.network(task, seed, width, depth, torch.float32, rescale=False)
    engine = METHODS[method].engine(task, torch.Generator().manual_seed(short_training.FRESH + seed))
    return short_training.train(task, model, engine, epochs, _CALIBRATED, partial(short_training.adam, rate=_RATE))


def _measurements(profile: Profile) -> list[Measurement]:
    plan = short_training.plan(profile)
    sizes = {key: plan[key] for key in ("depth", "batch", "boundary_batch", "initial_batch")}
    return [
        Measurement(
            f"outcomes-{method}-{seed}",
            f"{__name__}:measure",
            {"method": method, "seed": seed, "epochs": profile.methods.short, "width": _WIDTH, **sizes},
        )
        for seed in range(profile.methods.outcomes)
        for method in short_training.some(TRAINED, profile.methods.methods)
    ]


def _by_method(results: ExperimentResults) -> dict[str, list[dict[str, Any]]]:
    rows = [{"error": None, **arguments, **result} for arguments, result in results.measured]
    return {method: [row for row in rows if row["method"] == method] for method in TRAINED}


def _tables(results: ExperimentResults) -> list[Table]:
    found, lines = _by_method(results), []
    for method, rows in found.items():
        errors = np.array([row["error"] for row in rows if row["status"] == "ok"])
        collapsed = sum(_collapsed(row) for row in rows)
        quantiles = (
            [percent(float(q)) for q in np.quantile(errors, (0, 0.25, 0.5, 0.75, 1))] if len(errors) else ["-"] * 5
        )
        lines.append([METHODS[method].label, *quantiles, f"{collapsed} of {len(rows)}"])
    columns = ["method", "best", "first quarter", "median", "third quarter", "worst", "collapsed"]
    note = f"Collapsed: lost, or with an error above {percent(COLLAPSED)} at the end."
    return [Table(_answer(found), columns, lines, [note])]


def _answer(found: dict[str, list[dict[str, Any]]]) -> str:
    """Say whether the errors with sFD are distributed as those with AD; a lost training counts as worst."""
    ad, sfd = ([math.inf if row["error"] is None else row["error"] for row in found[m]] for m in ("ad", "sfd"))
    if min(len(ad), len(sfd)) < 3:
        return "Too few trainings to compare distributions."
    test: Any = stats.ks_2samp(ad, sfd)
    differ = "are not the same" if test.pvalue < 0.05 else "cannot be told apart"
    return (
        f"Poisson in its own coordinates: the distributions of errors with sFD and with AD {differ} "
        f"(Kolmogorov-Smirnov, p = {test.pvalue:.2g}, {len(ad)} and {len(sfd)} trainings). {_seed_by_seed(found)}"
    )


def _seed_by_seed(found: dict[str, list[dict[str, Any]]]) -> str:
    """Compare seed by seed, as trainings of one seed start from the same network and see the same points."""
    ad, sfd = ({row["seed"]: row for row in found[method]} for method in ("ad", "sfd"))
    both = [(_collapsed(ad[seed]), _collapsed(sfd[seed])) for seed in ad if seed in sfd]
    saved, lost = sum(a and not s for a, s in both), sum(s and not a for a, s in both)
    ratio = compare(methods.by_seed(found["sfd"]), methods.by_seed(found["ad"]))
    return (
        f"Seed by seed, sFD saves {saved} of {len(both)} from collapse and loses {lost} to it"
        + (f"; its error, by AD's, is {ratio}" if ratio else "")
        + "."
    )


def _collapsed(row: Mapping[str, Any]) -> bool:
    return row["status"] != "ok" or row["error"] > COLLAPSED


def _figure(results: ExperimentResults, path: Path) -> None:
    with plots.figure(path, 1, (6, 4)) as (axes,):
        for method, rows in _by_method(results).items():
            errors = sorted(100 * row["error"] for row in rows if row["status"] == "ok")
            if not errors:
                continue
            shares = [100 * number / len(rows) for number in range(len(errors) + 1)]
            # From the axis up to the smallest error.
            axes.step(
                [*errors[:1], *errors], shares, where="post", color=engine_style(method)[0], label=METHODS[method].label
            )
        axes.axvline(100 * COLLAPSED, color="0.6", linestyle="--", linewidth=1)
        plain_log(axes, y=None)
        axes.set(
            xlabel="relative L2 error [%]; collapsed beyond the dashed line",
            ylabel="trainings with at most that error [%]",
            ylim=(0, 102),
        )
        axes.legend()


EXPERIMENT = Experiment(
    "outcomes",
    "sFD on coordinates that are not rescaled: how outcomes are distributed",
    measurements=_measurements,
    tables=_tables,
    figure=_figure,
    note="A question that the paper leaves open.",
    position=24,
)
