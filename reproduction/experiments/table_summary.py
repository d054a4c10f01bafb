"""Summary table: relative L2 error of every engine on every problem."""

from __future__ import annotations

from pathlib import Path

from dudx.lab.run.engine_table import engine_label, in_table_order
from dudx.lab.sweep.sweep_run import Run
from reproduction.analysis import run_rows
from reproduction.analysis.figures import engine_style, panels
from reproduction.analysis.published import SCALE, published
from reproduction.analysis.statistics import best
from reproduction.analysis.table_figures import TableRow, draw_rows, legend_text
from reproduction.analysis.tables import Cell, Table, as_published, in_percent
from reproduction.experiment import Experiment, ExperimentResults
from reproduction.experiments import accuracy
from reproduction.profile import Profile


def _runs(profile: Profile) -> list[Run]:
    return [run for problem in profile.accuracy for run in accuracy.runs(profile, problem)]


def _tables(results: ExperimentResults) -> list[Table]:
    rows = results.runs
    problems = list(dict.fromkeys(row["problem"] for row in rows))
    engines = in_table_order(row["engine"] for row in rows)
    theirs = {problem: published(f"table-{problem}") for problem in problems}
    compared = {engine: any(engine in of_problem for of_problem in theirs.values()) for engine in engines}
    lines = []
    for problem in problems:
        of_problem = run_rows.where(rows, problem=problem)
        errors = {e: run_rows.by_seed(run_rows.where(of_problem, engine=e)) for e in engines}
        bold = best(errors)
        line: list[Cell | str] = [accuracy.title(problem)]
        for engine, by_seed in errors.items():
            mine = run_rows.where(of_problem, engine=engine)
            lost = run_rows.lost(mine)
            text = in_percent(list(by_seed.values())) + f" ({lost} not finished)" * bool(lost)
            coincides = engine == "efd" and problem in accuracy.ONE_ORDER and not mine
            line.append("equal FD" if coincides else Cell(text, engine in bold))
            if compared[engine]:
                line.append(as_published(theirs[problem].get(engine, {}).get("l2_relative", [None])[0], 2))
        lines.append(line)
    headings = [text for e in engines for text in (engine_label(e), "published")[: 1 + compared[e]]]
    return [
        Table(
            "Relative L2 error in per cent, mean ± standard deviation over the seeds.",
            ["problem", *headings],
            lines,
            [
                f"Published: {SCALE}; ours: see the table of each problem.",
                accuracy.EMPHASIS,
                *run_rows.missing_note(rows),
            ],
        )
    ]


def _figure(results: ExperimentResults, path: Path) -> None:
    """One panel per problem."""
    rows = [row for row in results.runs if row["status"] == "finished"]
    problems = list(dict.fromkeys(row["problem"] for row in rows))
    with panels(path, 1, max(1, len(problems)), (4.6 * max(1, len(problems)), 3.4)) as (figure, (axes,)):
        for ax, problem in zip(axes, problems, strict=False):
            mine = run_rows.where(rows, problem=problem)
            theirs = published(f"table-{problem}")
            drawn = [
                TableRow(
                    accuracy.label(problem, engine),
                    *engine_style(engine),
                    [100 * error for error in run_rows.by_seed(run_rows.where(mine, engine=engine)).values()],
                    theirs.get(engine, {}).get("l2_relative"),
                )
                for engine in in_table_order(row["engine"] for row in mine)
            ]
            draw_rows(ax, drawn, "relative L2 error [%]")
            ax.set_title(accuracy.title(problem))
        figure.supxlabel(legend_text(), fontsize="small")


EXPERIMENT = Experiment(
    "table-summary", "Relative L2 error, all problems", runs=_runs, tables=_tables, figure=_figure, position=8
)
