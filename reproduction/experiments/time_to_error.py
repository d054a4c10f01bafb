"""CPU seconds that every engine takes to reach an error (not published)."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dudx.errors import percent
from dudx.lab.run.engine_table import engine_label, in_table_order
from reproduction.analysis import error_curves, run_rows
from reproduction.analysis.figures import engine_style, panels, plain_log
from reproduction.analysis.tables import Table
from reproduction.experiment import Experiment, ExperimentResults
from reproduction.experiments import accuracy, table_summary

#: Relative errors to reach.
LEVELS = (1e-1, 3e-2, 1e-2, 3e-3, 1e-3, 3e-4, 1e-4)
#: Levels in the table.
_SHOWN = (1e-1, 1e-2, 1e-3, 1e-4)


#: Problem and engine.
Group = tuple[str, str]


def _times(results: ExperimentResults) -> dict[Group, dict[float, list[float | None]]]:
    """CPU seconds at which each finished run first had an error below each level."""
    rows, curves = results.runs, error_curves.error_curves(results.runs)
    found: dict[Group, dict[float, list[float | None]]] = {}
    for problem in dict.fromkeys(row["problem"] for row in rows):
        of_problem = run_rows.where(rows, problem=problem)
        for engine in in_table_order(row["engine"] for row in of_problem):
            mine = run_rows.where(of_problem, engine=engine, status="finished")
            found[problem, engine] = {level: _reached(mine, curves, level) for level in LEVELS}
    return found


def _reached(
    rows: Sequence[Mapping[str, Any]], curves: Mapping[str, error_curves.ErrorCurve], level: float
) -> list[float | None]:
    return [error_curves.reached(curves.get(row["name"], ()), "cpu_seconds", level) for row in rows]


def _median(times: Sequence[float | None]) -> float | None:
    """Median over runs, of which those that never reached the level are slowest; None if they are half."""
    reached = sorted(time for time in times if time is not None)
    if 2 * len(reached) <= len(times):
        return None
    return statistics.median([*reached, *[float("inf")] * (len(times) - len(reached))])


def _tables(results: ExperimentResults) -> list[Table]:
    lines = []
    for (problem, engine), levels in _times(results).items():
        runs = len(next(iter(levels.values())))
        cells = []
        for level in _SHOWN:
            middle, there = _median(levels[level]), sum(time is not None for time in levels[level])
            cells.append("-" if middle is None else f"{middle:.1f}" + f" ({there} of {runs})" * (there < runs))
        lines.append([accuracy.title(problem), accuracy.label(problem, engine), *cells, str(runs)])
    return [
        Table(
            "CPU seconds of training until the error was first below a level, median over the runs.",
            ["problem", "engine", *(f"below {percent(level)}" for level in _SHOWN), "runs"],
            lines,
            [
                "A dash: not reached in the given time by half of the runs or more. One thread; evaluations of the "
                "error, every fifth step, do not count. Not in the paper.",
                *run_rows.missing_note(results.runs),
            ],
            words=2,
        )
    ]


def _figure(results: ExperimentResults, path: Path) -> None:
    found = _times(results)
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
    runs=table_summary.EXPERIMENT.runs,
    tables=_tables,
    figure=_figure,
    position=13,
)
