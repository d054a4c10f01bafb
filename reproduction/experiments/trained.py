"""Training runs as data: a line for each, its errors by seed, and how its steps were calibrated."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dudx.lab.run.engine_table import engine_label
from dudx.lab.run.records import CALIBRATIONS, read_calibrations
from reproduction.archive import curve
from reproduction.experiments.base import CsvRows, Found
from reproduction.experiments.data import Data
from reproduction.experiments.statistics import Seeds
from reproduction.experiments.tables import COLLAPSED

RUNS, STEPS, LOOKS = "runs.csv", "steps.csv", "looks.csv"
_SETTINGS = ("problem", "engine", "network", "coupled", "recalibrate", "dtype", "seed")
_RESULTS = ("l2_relative", "smape", "max_error", "seconds", "cpu_seconds", "step")
#: What data that are older than a column hold in its place.
_OLDER = {"dtype": "float32", "cpu_seconds": ""}
_CALIBRATIONS_KEPT = 50


def collect_runs(found: Found) -> dict[str, CsvRows]:
    """The runs, their looks at the error and, where steps were calibrated, the steps."""
    looks = look_rows(found)
    return {RUNS: run_rows(found), **({LOOKS: looks} if looks else {}), STEPS: step_rows(found)}


def run_rows(found: Found) -> list[dict[str, Any]]:
    """A line for each run, also for those that diverged, failed or are missing."""
    return [
        {
            "name": outcome.name,
            **{key: getattr(outcome.settings, key) for key in _SETTINGS},
            "status": "missing" if outcome.status == "interrupted" else outcome.status,
            "epochs": (outcome.result or {}).get("epochs"),
            **{key: (outcome.result or {}).get(key) for key in _RESULTS},
            "reason": outcome.reason,
        }
        for outcome in found.outcomes
    ]


def look_rows(found: Found) -> list[dict[str, Any]]:
    """Every look at the error that a run took on its way, with the steps and CPU seconds it had behind it."""
    rows = []
    for outcome in found.outcomes:
        looks = (outcome.result or {}).get("curve") or curve(found.runs / outcome.name)
        for seconds, epoch, error in looks:
            rows.append({"name": outcome.name, "cpu_seconds": seconds, "epoch": epoch, "l2_relative": error})
    return rows


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
    return [{**_OLDER, **row} for row in data.rows(RUNS, words, numbers)]


def where(rows: Iterable[Mapping[str, Any]], **chosen: Any) -> list[Mapping[str, Any]]:
    """The rows with these values."""
    return [row for row in rows if all(row[key] == value for key, value in chosen.items())]


def by_seed(rows: Iterable[Mapping[str, Any]], metric: str = "l2_relative") -> Seeds:
    """A metric of the finished runs, by seed."""
    return {int(r["seed"]): r[metric] for r in rows if r["status"] == "finished" and r[metric] is not None}


def lost(rows: Iterable[Mapping[str, Any]]) -> int:
    """How many runs diverged or failed."""
    return sum(row["status"] not in ("finished", "missing") for row in rows)


def missing(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """The names of the runs that were asked for and are not there yet."""
    return [row["name"] for row in rows if row["status"] == "missing"]


def collapsed(rows: Iterable[Mapping[str, Any]]) -> int:
    """How many runs finished and have learned next to nothing of the solution."""
    return sum(error > COLLAPSED for error in by_seed(rows).values())


def told_missing(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """A sentence on the runs that are not there, by what they differ in: "seeds 3, 4 of AD"; none if all are."""
    keys = [key for key in _SETTINGS if key == "engine" or (key != "seed" and _varied(rows, key))]
    found: dict[str, list[int]] = {}
    for row in where(rows, status="missing"):
        found.setdefault(" ".join(_word(key, row[key]) for key in keys), []).append(int(row["seed"]))
    together: dict[str, list[str]] = {}
    for words, seeds in found.items():
        together.setdefault(", ".join(map(str, seeds)), []).append(words)
    told = "; ".join(f"seed{'s' * (',' in seeds)} {seeds} of {', '.join(words)}" for seeds, words in together.items())
    return [f"Missing runs: {told}."] if told else []


def _varied(rows: Sequence[Mapping[str, Any]], key: str) -> bool:
    """Whether runs differ in this where they do not in the problem, which may decide it."""
    values = {(row["problem"], row[key]) for row in rows}
    return len(values) > (1 if key == "problem" else len({problem for problem, _ in values}))


def _word(key: str, value: Any) -> str:
    if key == "recalibrate":
        return f"every {value:g}"
    return engine_label(value).removesuffix(" (ours)") if key == "engine" else str(value)


def scale(data: Data, names: Sequence[str], interval: bool = True) -> str:
    """How large some runs were, in words; without the recalibration interval where that is what they differ in."""
    configs = [config for name, config in data.configs().items() if name in names]

    def values(key: str) -> str:
        found = dict.fromkeys(config.get(key) for config in configs)
        return " or ".join(f"{value:g}" if isinstance(value, float) else str(value) for value in found)

    length = f"{values('epochs')} epochs"
    if any("seconds" in config for config in configs):
        length = f"{values('seconds')} s of a processor"
    rate = "" if values("optimizer") == "lm" else f" with learning rate {values('learning_rate')}"
    calibrated = f", steps calibrated every {values('recalibrate')} epochs" if interval else ""
    rescaled = ", inputs rescaled to [-1, 1]" if any(config.get("rescale") for config in configs) else ""
    return (
        f"{length}, batch {values('batch')}, network {values('depth')} × {values('width')}{rescaled}, "
        f"{values('optimizer')}{rate} in {values('dtype')}{calibrated}, "
        f"{len({config.get('seed') for config in configs})} seeds"
    )
