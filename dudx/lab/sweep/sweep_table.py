"""The results of a sweep: a CSV file with a line per run, and a table of means over the seeds. No run is left out."""

from __future__ import annotations

import csv
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Column
from rich.table import Table as ScreenTable

from dudx.errors import InputError, mean_percent, percent
from dudx.lab import file_formats
from dudx.lab.sweep.sweep_run import Outcome

_MOST_SEEDS = 10_000
COLUMNS = [
    *("name", "problem", "engine", "seed", "status"),
    *("l2_relative", "smape", "max_error", "seconds", "epochs", "step", "reason"),
]


@dataclass(frozen=True)
class Group:
    """Runs that differ in their seeds only."""

    values: tuple[Any, ...]
    #: Number of runs by status.
    counts: Counter[str]
    #: The relative L2 errors of the finished runs that have a reference.
    errors: list[float]
    seconds: list[float]

    @property
    def mean(self) -> float | None:
        """The mean error of the finished runs."""
        return statistics.fmean(self.errors) if self.errors else None

    @property
    def deviation(self) -> float | None:
        """The sample standard deviation of the errors; unknown for a single run."""
        return statistics.stdev(self.errors) if len(self.errors) > 1 else None


def groups(outcomes: Sequence[Outcome], keys: Sequence[str]) -> list[Group]:
    """Group runs by their values of these settings."""
    sorted_out: dict[tuple[Any, ...], list[Outcome]] = {}
    for outcome in outcomes:
        sorted_out.setdefault(tuple(getattr(outcome.settings, key) for key in keys), []).append(outcome)
    found = []
    for values, members in sorted_out.items():
        results = [member.result for member in members if member.status == "finished" and member.result is not None]
        errors = [result["l2_relative"] for result in results if result["l2_relative"] is not None]
        counts = Counter(member.status for member in members)
        found.append(Group(values, counts, errors, [result["seconds"] for result in results]))
    return found


def shown(outcomes: Sequence[Outcome], keys: Sequence[str]) -> ScreenTable:
    """Return a table of the groups: mean ± standard deviation over the finished runs."""
    table = ScreenTable(*keys, Column("relative L2", justify="right", no_wrap=True))
    for column in ("s per run", "finished", "diverged", "failed"):
        table.add_column(column, justify="right")
    for group in groups(outcomes, keys):
        counts = [str(group.counts[status]) for status in ("finished", "diverged", "failed")]
        seconds = f"{statistics.fmean(group.seconds):.1f}" if group.seconds else "-"
        table.add_row(*map(str, group.values), _error(group), seconds, *counts)
    return table


def _error(group: Group) -> str:
    if group.mean is None:
        return "-"
    if group.deviation is None:
        return percent(group.mean)
    return f"{mean_percent(group.mean, group.deviation)} %"


def write_csv(path: Path, outcomes: Sequence[Outcome]) -> None:
    """Write one line per run."""
    with file_formats.atomic(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, extrasaction="ignore")
        writer.writeheader()
        for outcome in outcomes:
            settings, result = outcome.settings, outcome.result or {}
            writer.writerow(
                {
                    **result,
                    "name": outcome.name,
                    "problem": settings.problem,
                    "engine": settings.engine,
                    "seed": settings.seed,
                    "status": outcome.status,
                    "reason": outcome.reason,
                }
            )


def parsed_seeds(text: str) -> list[int]:
    """Return the seeds of a text such as "0-4", "0,1,2" or "0-2,7"."""
    seeds: list[int] = []
    for word in text.split(","):
        first, dash, last = word.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise InputError(f"Seeds are given as 0-4 or 0,1,2; got {text!r}.")
        begin, end = int(first), int(last if dash else first)
        if max(begin, end) >= 2**63 or len(seeds) + end - begin >= _MOST_SEEDS:
            raise InputError(f"The seeds {text!r} are too large or too many; a sweep has {_MOST_SEEDS} at most.")
        seeds.extend(range(begin, end + 1))
    if not seeds or len(set(seeds)) < len(seeds):
        raise InputError(f"The seeds {text!r} must be at least one, without repetition.")
    return seeds
