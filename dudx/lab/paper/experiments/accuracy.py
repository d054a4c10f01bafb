"""The accuracy tables: the same problem with every engine, over the same seeds."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from dudx.lab.paper.experiments import claims, trained
from dudx.lab.paper.experiments.base import Experiment, named
from dudx.lab.paper.experiments.claims import Claim, Lost
from dudx.lab.paper.experiments.data import Data
from dudx.lab.paper.experiments.profile import ENGINE_NAMES, Profile
from dudx.lab.paper.experiments.published import SCALE, published
from dudx.lab.paper.experiments.statistics import TEST, best, compare
from dudx.lab.paper.experiments.tables import Cell, Table, counted, spread
from dudx.lab.paper.experiments.tables import published as as_published
from dudx.lab.sweep.runs import Run

LABELS = ENGINE_NAMES
TITLES = {"poisson": "Poisson 2D", "burgers": "Burgers 1D", "heat": "Heat2D-CG"}
#: Metric to heading, digits, and factor from what is stored to what is shown.
METRICS = {
    "smape": ("SMAPE (%)", 2, 1.0),
    "l2_relative": ("L2 relative (%)", 2, 100.0),
    "max_error": ("max error", 3, 1.0),
}
SMAPE = (
    "SMAPE counts 200 % wherever the reference is 0 and the prediction is not exactly so: it has a floor that depends "
    "on how many of the scored points lie there, and ours are not the paper's."
)
EMPHASIS = (
    "Bold: the best, and what cannot be told from it, where anything is worse beyond the noise of the seeds "
    f"({TEST}, 5 % level)."
)


def runs(profile: Profile, problem: str) -> list[Run]:
    """The runs of a problem."""
    plan = profile.accuracy[problem]
    return [
        named(profile.settings(problem, engine=engine, seed=seed, **plan.settings))
        for engine in plan.engines
        for seed in range(plan.seeds)
    ]


def label(problem: str, engine: str) -> str:
    """What an engine is called in a table."""
    return "FD (eq. eFD)" if (problem, engine) == ("poisson", "fd") else LABELS[engine]


def experiment(problem: str, *notes: str) -> Experiment:
    """The table of a problem."""
    name = f"table-{problem}"
    return Experiment(
        name,
        f"{TITLES[problem]}: errors by engine",
        trained.collect,
        runs=lambda profile: runs(profile, problem),
        tables=lambda data: [_table(data, problem, notes)],
        claims=lambda data: _claims(data, problem),
    )


def _engines(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    found = {row["engine"] for row in rows}
    return [engine for engine in LABELS if engine in found]


def _table(data: Data, problem: str, notes: Sequence[str]) -> Table:
    rows = trained.read(data)
    engines, theirs = _engines(rows), published(f"table-{problem}")
    bold = {
        metric: best({engine: trained.by_seed(trained.where(rows, engine=engine), metric) for engine in engines})
        for metric in METRICS
    }
    lines = []
    for engine in engines:
        mine = trained.where(rows, engine=engine)
        line: list[Cell | str] = [label(problem, engine)]
        for metric, (_, digits, factor) in METRICS.items():
            values = list(trained.by_seed(mine, metric).values())
            line.append(Cell(spread(values, digits, factor), engine in bold[metric]))
            line.append(as_published(theirs.get(engine, {}).get(metric), digits))
        lines.append([*line, counted(mine)])
    headings = [text for heading, _, _ in METRICS.values() for text in (heading, "published")]
    return Table(
        f"{TITLES[problem]}: mean ± standard deviation over the seeds.",
        ["method", *headings, "finished"],
        lines,
        [f"Ours: {trained.scale(data, [row['name'] for row in rows])}. Published: {SCALE}.", EMPHASIS, SMAPE, *notes],
    )


def _claims(data: Data, problem: str) -> list[Claim]:
    rows, theirs, title = trained.read(data), published(f"table-{problem}"), TITLES[problem]
    errors = {engine: trained.by_seed(trained.where(rows, engine=engine)) for engine in _engines(rows)}

    def numbers(*engines: str) -> str:
        return ", ".join(f"{LABELS[e]} {theirs[e]['l2_relative'][0]:.2f} %" for e in engines if e in theirs)

    def lost(engine: str) -> Lost:
        return Lost(*(trained.lost(trained.where(rows, engine=each)) for each in (engine, "ad")))

    ad, found = errors.get("ad", {}), []
    for engine in ("fd", "efd"):
        if engine in errors:
            verdict, evidence = claims.same(compare(errors[engine], ad), *apart(errors[engine], ad), lost(engine))
            text = f"{title}: {label(problem, engine)} is as accurate as AD"
            found.append(Claim(text, numbers("ad", engine), verdict, f"{LABELS[engine]} / AD: {evidence}"))
    if "sfd" in errors:
        better = problem == "poisson"
        verdict, evidence = (claims.smaller if better else claims.larger)(compare(errors["sfd"], ad), lost=lost("sfd"))
        text = f"{title}: sFD is {'more' if better else 'less'} accurate than AD"
        found.append(Claim(text, numbers("ad", "sfd"), verdict, f"sFD / AD: {evidence}"))
    return found


def apart(a: Mapping[int, float], b: Mapping[int, float]) -> tuple[float, float]:
    """The difference of the means, and the larger standard deviation."""
    if min(len(a), len(b)) < 2:
        return 0.0, 0.0
    deviations = [statistics.stdev(seeds.values()) for seeds in (a, b)]
    return statistics.fmean(a.values()) - statistics.fmean(b.values()), max(deviations)
