"""Ours: the CPU seconds that every engine takes to bring the error below a level."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dudx.lab.run.engine_table import engine_label, in_table_order
from reproduction.experiments import accuracy, looks, table_summary, trained
from reproduction.experiments.base import CsvRows, Experiment, Found
from reproduction.experiments.data import Data
from reproduction.experiments.pictures import engine_style, panels, plain_log
from reproduction.experiments.tables import Table, percent

#: Relative errors that runs are to come below.
LEVELS = (1e-1, 3e-2, 1e-2, 3e-3, 1e-3, 3e-4, 1e-4)
#: Those that the table shows.
_TOLD = (1e-1, 1e-2, 1e-3, 1e-4)


def _collect(found: Found) -> dict[str, CsvRows]:
    rows = trained.look_rows(found)
    return {trained.RUNS: trained.run_rows(found), **({trained.LOOKS: rows} if rows else {})}


Group = tuple[str, str]


def _times(data: Data) -> dict[Group, dict[float, list[float | None]]]:
    """By problem and engine: for each level, when each finished run first saw an error below it."""
    rows, ways = trained.read(data), looks.read(data)
    found: dict[Group, dict[float, list[float | None]]] = {}
    for problem in dict.fromkeys(row["problem"] for row in rows):
        of_problem = trained.where(rows, problem=problem)
        for engine in in_table_order(row["engine"] for row in of_problem):
            mine = trained.where(of_problem, engine=engine, status="finished")
            found[problem, engine] = {level: _reached(mine, ways, level) for level in LEVELS}
    return found


def _reached(rows: Sequence[Mapping[str, Any]], ways: looks.Ways, level: float) -> list[float | None]:
    return [looks.reached(ways.get(row["name"], ()), "cpu_seconds", level) for row in rows]


def _median(times: Sequence[float | None]) -> float | None:
    """The median over runs, those that never got there being the slowest; None if that is so of half of them."""
    reached = sorted(time for time in times if time is not None)
    if 2 * len(reached) <= len(times):
        return None
    return statistics.median([*reached, *[float("inf")] * (len(times) - len(reached))])


def _tables(data: Data) -> list[Table]:
    lines = []
    for (problem, engine), levels in _times(data).items():
        runs = len(next(iter(levels.values())))
        cells = []
        for level in _TOLD:
            middle, there = _median(levels[level]), sum(time is not None for time in levels[level])
            cells.append("-" if middle is None else f"{middle:.1f}" + f" ({there} of {runs})" * (there < runs))
        lines.append([accuracy.title(problem), accuracy.label(problem, engine), *cells, str(runs)])
    return [
        Table(
            "CPU seconds of training until the error was first seen below a level, median over the runs.",
            ["problem", "engine", *(f"below {percent(level)}" for level in _TOLD), "runs"],
            lines,
            [
                "A dash: not within the time that runs were given, for half of them or more. One thread; the looks at "
                "the error, every fifth step, do not count. Not in the paper.",
                *trained.told_missing(trained.read(data)),
            ],
            words=2,
        )
    ]


def _figure(data: Data, path: Path) -> None:
    found = _times(data)
    problems = list(dict.fromkeys(problem for problem, _ in found))
    with panels(path, 1, len(problems), (4.2 * len(problems), 3.8)) as (figure, (axes,)):
        for ax, problem in zip(axes, problems, strict=True):
            for (of, engine), levels in found.items():
                if of == problem:
                    colour, marker = engine_style(engine)
                    middles = {level: _median(times) for level, times in levels.items()}
                    known = [(100 * level, middle) for level, middle in middles.items() if middle is not None]
                    shown = list(zip(*known, strict=True)) or [(), ()]
                    ax.plot(*shown, color=colour, marker=marker, markersize=5, label=engine_label(engine))
            plain_log(ax)
            ax.invert_xaxis()
            ax.set(xlabel="relative L2 error [%]", title=accuracy.title(problem))
        axes[0].set_ylabel("CPU seconds until it is reached")
        entries = {label: handle for ax in axes for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)}
        figure.legend(list(entries.values()), list(entries), loc="outside lower center", ncols=max(1, len(entries)))


EXPERIMENT = Experiment(
    "time-to-error",
    "Seconds until an error is reached",
    _collect,
    runs=table_summary.EXPERIMENT.runs,
    tables=_tables,
    figure=_figure,
    place=13,
)
