"""The relative L2 error of every engine on every problem."""

from __future__ import annotations

from dudx.lab.paper.experiments import accuracy, trained
from dudx.lab.paper.experiments.base import Experiment
from dudx.lab.paper.experiments.data import Data
from dudx.lab.paper.experiments.profile import Profile
from dudx.lab.paper.experiments.published import SCALE, published
from dudx.lab.paper.experiments.statistics import best
from dudx.lab.paper.experiments.tables import Cell, Table, spread
from dudx.lab.paper.experiments.tables import published as as_published
from dudx.lab.sweep.runs import Run


def _runs(profile: Profile) -> list[Run]:
    return [run for problem in accuracy.TITLES for run in accuracy.runs(profile, problem)]


def _tables(data: Data) -> list[Table]:
    rows = trained.read(data)
    lines = []
    for problem, title in accuracy.TITLES.items():
        of_problem = trained.where(rows, problem=problem)
        errors = {e: trained.by_seed(trained.where(of_problem, engine=e)) for e in accuracy.LABELS}
        bold = best(errors)
        line: list[Cell | str] = [title]
        for engine, by_seed in errors.items():
            mine = trained.where(of_problem, engine=engine)
            missing = trained.lost(mine)
            text = spread(list(by_seed.values()), 2, 100) + (f" ({missing} not finished)" if missing else "")
            coincides = (problem, engine) == ("poisson", "efd") and not mine
            line.append("equal FD" if coincides else Cell(text, engine in bold))
            line.append(as_published(published(f"table-{problem}").get(engine, {}).get("l2_relative", [None])[0], 2))
        lines.append(line[:-1])  # nothing is published of the last engine, which is ours
    headings = [text for name in accuracy.LABELS.values() for text in (name, "published")][:-1]
    return [
        Table(
            "Relative L2 error in per cent, mean ± standard deviation over the seeds.",
            ["problem", *headings],
            lines,
            [f"Published: {SCALE}; ours: see the table of each problem.", accuracy.EMPHASIS],
        )
    ]


EXPERIMENT = Experiment("table-summary", "Relative L2 error, all problems", trained.collect, runs=_runs, tables=_tables)
