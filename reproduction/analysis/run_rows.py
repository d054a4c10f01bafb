"""Selecting and summarising rows of training runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dudx.lab.problems import problem
from dudx.lab.run.engine_table import engine_label
from reproduction.analysis.statistics import Seeds
from reproduction.analysis.tables import COLLAPSED

#: Settings in which the runs of an experiment may differ.
_VARIED = ("problem", "engine", "network", "coupled", "recalibrate", "dtype")

RunRow = Mapping[str, Any]


def where(rows: Iterable[RunRow], **chosen: Any) -> list[RunRow]:
    """Return the rows with these values."""
    return [row for row in rows if all(row[key] == value for key, value in chosen.items())]


def by_seed(rows: Iterable[RunRow], metric: str = "l2_relative") -> Seeds:
    """Return a metric of the finished runs, by seed."""
    return {row["seed"]: row[metric] for row in rows if row["status"] == "finished" and row[metric] is not None}


def lost(rows: Iterable[RunRow]) -> int:
    """Count the runs that diverged or failed."""
    return sum(row["status"] not in ("finished", "missing") for row in rows)


def missing(rows: Iterable[RunRow]) -> list[str]:
    """Return the names of the runs that have not been made yet."""
    return [row["name"] for row in rows if row["status"] == "missing"]


def collapsed(rows: Iterable[RunRow]) -> int:
    """Count the runs that finished with an error so large that the network has hardly learned the solution."""
    return sum(error > COLLAPSED for error in by_seed(rows).values())


def missing_note(rows: Sequence[RunRow]) -> list[str]:
    """Return a sentence that names the missing runs by what they differ in, "seeds 3, 4 of AD"; none if complete."""
    keys = [key for key in _VARIED if key == "engine" or _differ(rows, key)]
    found: dict[str, list[int]] = {}
    for row in where(rows, status="missing"):
        found.setdefault(" ".join(_word(key, row[key]) for key in keys), []).append(row["seed"])
    together: dict[str, list[str]] = {}
    for words, seeds in found.items():
        together.setdefault(", ".join(map(str, seeds)), []).append(words)
    named = [f"seed{'s' * (',' in seeds)} {seeds} of {', '.join(words)}" for seeds, words in together.items()]
    return [f"Missing runs: {'; '.join(named)}."] if named else []


def _differ(rows: Sequence[RunRow], key: str) -> bool:
    """Return whether runs of one problem differ in a setting."""
    values = {(row["problem"], row[key]) for row in rows}
    return len(values) > (1 if key == "problem" else len({problem for problem, _ in values}))


def _word(key: str, value: Any) -> str:
    if key == "recalibrate":
        return f"every {value:g}"
    return engine_label(value).removesuffix(" (ours)") if key == "engine" else str(value)


def scale(rows: Sequence[RunRow], interval: bool = True) -> str:
    """Describe the size of runs in words; without the recalibration interval if that is what they differ in."""
    settings = [row["settings"] for row in rows]

    def values(key: str) -> str:
        found = dict.fromkeys(each.get(key) for each in settings)
        return " or ".join(f"{value:g}" if isinstance(value, float) else str(value) for value in found)

    length = f"{values('epochs')} epochs"
    if any("seconds" in each for each in settings):
        length = f"{values('seconds')} s of a processor"
    rate = "" if values("optimizer") == "lm" else f" with learning rate {values('learning_rate')}"
    calibrated = f", steps calibrated every {values('recalibrate')} epochs" if interval else ""
    words = ", inputs rescaled to [-1, 1]" if any(map(rescaled, settings)) else ""
    return (
        f"{length}, batch {values('batch')}, network {values('depth')} × {values('width')}{words}, "
        f"{values('optimizer')}{rate} in {values('dtype')}{calibrated}, {len({row['seed'] for row in rows})} seeds"
    )


def rescaled(settings: Mapping[str, Any]) -> bool:
    """Return whether a run's inputs are rescaled to [-1, 1]: by its settings, or else because its problem says so."""
    return bool(settings.get("rescale", problem(settings["problem"]).rescaled))
