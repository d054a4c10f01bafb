"""An open question: what sFD does on coordinates that are not rescaled, where some trainings collapse.

Many short trainings of Poisson's equation in its own coordinates, where the paper explains by such collapses what sFD
gains, and how their errors are distributed.
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

from dudx.lab import plots
from reproduction.experiments import methods, small
from reproduction.experiments.base import CsvRows, Experiment, Found, Measurement
from reproduction.experiments.data import Data
from reproduction.experiments.pictures import engine_style, plain_log
from reproduction.experiments.profile import Profile
from reproduction.experiments.statistics import compare
from reproduction.experiments.tables import COLLAPSED, Table, percent
from reproduction.experiments.ways import WAYS

TRAINED = ("ad", "fd", "sfd")
#: A network and a rate of Adam with which some trainings collapse and some do not; found by trying seeds 0 and 1 with
#: Taylor, which takes no part.
_WIDTH, _RATE = 32, 5e-3
_CALIBRATED = 500


def measure(method: str, seed: int, epochs: int, width: int, depth: int, **sizes: int) -> dict[str, Any]:
    """A short training by Adam."""
    torch.set_num_threads(1)
    task = small.task("poisson", seed, sizes, torch.float32)
    model = small.network(task, seed, width, depth, torch.float32, rescale=False)
    engine = WAYS[method].engine(task, torch.Generator().manual_seed(small.FRESH + seed))
    return small.train(task, model, engine, epochs, _CALIBRATED, partial(small.adam, rate=_RATE))


def _measurements(profile: Profile) -> list[Measurement]:
    plan = small.plan(profile)
    sizes = {key: plan[key] for key in ("depth", "batch", "boundary_batch", "initial_batch")}
    return [
        Measurement(
            f"outcomes-{method}-{seed}",
            f"{__name__}:measure",
            {"method": method, "seed": seed, "epochs": profile.methods.short, "width": _WIDTH, **sizes},
        )
        for seed in range(profile.methods.outcomes)
        for method in small.some(TRAINED, profile.methods.methods)
    ]


def _collect(found: Found) -> dict[str, CsvRows]:
    return {
        "outcomes.csv": [
            {
                "method": m.arguments["method"],
                "seed": m.arguments["seed"],
                "status": result["status"],
                "error": result.get("error"),
            }
            for m, result in found.measured
        ]
    }


def _read(data: Data) -> dict[str, list[dict[str, Any]]]:
    rows = data.rows("outcomes.csv", ("method", "status"), ("seed", "error"))
    return {method: [row for row in rows if row["method"] == method] for method in TRAINED}


def _tables(data: Data) -> list[Table]:
    found, lines = _read(data), []
    for method, rows in found.items():
        errors = np.array([row["error"] for row in rows if row["status"] == "ok"])
        collapsed = sum(_collapsed(row) for row in rows)
        quantiles = (
            [percent(float(q)) for q in np.quantile(errors, (0, 0.25, 0.5, 0.75, 1))] if len(errors) else ["-"] * 5
        )
        lines.append([WAYS[method].label, *quantiles, f"{collapsed} of {len(rows)}"])
    columns = ["method", "best", "first quarter", "median", "third quarter", "worst", "collapsed"]
    note = f"Collapsed: lost, or with an error above {percent(COLLAPSED)} at the end."
    return [Table(_answer(found), columns, lines, [note])]


def _answer(found: dict[str, list[dict[str, Any]]]) -> str:
    """Whether the distribution of errors with sFD is another one than with AD, a lost training being worst of all."""
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
    """Trainings of a seed start from the same network and see the same points, so that their fates can be compared."""
    ad, sfd = ({int(row["seed"]): row for row in found[method]} for method in ("ad", "sfd"))
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


def _figure(data: Data, path: Path) -> None:
    with plots.figure(path, 1, (6, 4)) as (axes,):
        for method, rows in _read(data).items():
            errors = sorted(100 * row["error"] for row in rows if row["status"] == "ok")
            if not errors:
                continue
            shares = [100 * number / len(rows) for number in range(len(errors) + 1)]
            # From the axis up to the best.
            axes.step(
                [*errors[:1], *errors], shares, where="post", color=engine_style(method)[0], label=WAYS[method].label
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
    _collect,
    measurements=_measurements,
    tables=_tables,
    figure=_figure,
    note="A question that the paper leaves open.",
    place=24,
)
