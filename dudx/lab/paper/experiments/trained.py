"""Training runs as data: a line for each, its errors by seed, and how its steps were calibrated."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dudx.lab.paper.experiments.base import CsvRows, Found
from dudx.lab.paper.experiments.data import Data
from dudx.lab.paper.experiments.statistics import Seeds
from dudx.lab.run.records import CALIBRATIONS, read_calibrations

RUNS, STEPS = "runs.csv", "steps.csv"
_SETTINGS = ("problem", "engine", "network", "coupled", "recalibrate", "seed")
_RESULTS = ("l2_relative", "smape", "max_error", "seconds", "step")
_CALIBRATIONS_KEPT = 50


def collect_runs(found: Found) -> dict[str, CsvRows]:
    """The runs and, where steps were calibrated, the steps."""
    return {RUNS: run_rows(found), STEPS: step_rows(found)}


def run_rows(found: Found) -> list[dict[str, Any]]:
    """A line for each run, also for those that diverged or failed."""
    return [
        {
            "name": outcome.name,
            **{key: getattr(outcome.settings, key) for key in _SETTINGS},
            "status": outcome.status,
            "epochs": (outcome.result or {}).get("epochs"),
            **{key: (outcome.result or {}).get(key) for key in _RESULTS},
            "reason": outcome.reason,
        }
        for outcome in found.outcomes
    ]


def step_rows(found: Found) -> list[dict[str, Any]]:
    """The calibrated steps of every run, by order; evenly thinned where there are many."""
    rows = []
    for outcome in found.outcomes:
        folder = found.runs / outcome.name
        searches = read_calibrations(folder) if (folder / CALIBRATIONS).exists() else []
        for order in sorted({search["order"] for search in searches}):
            of_order = [search for search in searches if search["order"] == order]
            for search in itertools.islice(of_order, None, None, -(-len(of_order) // _CALIBRATIONS_KEPT)):
                row = {"name": outcome.name, "epoch": search["epoch"], "order": order, "step": search["step"]}
                rows.append({**row, "rmse": min(search["rmse"])})
    return rows


# -- reading -------------------------------------------------------------------------------------------------------


def read(data: Data) -> list[dict[str, Any]]:
    """The runs of an experiment."""
    words = ("name", "problem", "engine", "network", "coupled", "status")
    numbers = ("recalibrate", "seed", "epochs", "l2_relative", "smape", "max_error", "seconds")
    return data.rows(RUNS, words, numbers)


def where(rows: Iterable[Mapping[str, Any]], **chosen: Any) -> list[Mapping[str, Any]]:
    """The rows with these values."""
    return [row for row in rows if all(row[key] == value for key, value in chosen.items())]


def by_seed(rows: Iterable[Mapping[str, Any]], metric: str = "l2_relative") -> Seeds:
    """A metric of the finished runs, by seed."""
    return {int(r["seed"]): r[metric] for r in rows if r["status"] == "finished" and r[metric] is not None}


def lost(rows: Iterable[Mapping[str, Any]]) -> int:
    """How many runs diverged or failed."""
    return sum(row["status"] != "finished" for row in rows)


def scale(data: Data, names: Sequence[str], interval: bool = True) -> str:
    """How large some runs were, in words; without the recalibration interval where that is what they differ in."""
    configs = [config for name, config in data.configs().items() if name in names]

    def values(key: str) -> str:
        return " or ".join(str(value) for value in dict.fromkeys(config.get(key) for config in configs))

    calibrated = f", steps calibrated every {values('recalibrate')} epochs" if interval else ""
    rescaled = ", inputs rescaled to [-1, 1]" if any(config.get("rescale") for config in configs) else ""
    return (
        f"{values('epochs')} epochs, batch {values('batch')}, network {values('depth')} × {values('width')}{rescaled}, "
        f"{values('optimizer')} with learning rate {values('learning_rate')}{calibrated}, "
        f"{len({config.get('seed') for config in configs})} seeds"
    )
