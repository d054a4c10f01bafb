"""The accuracy tables: the same problem with every engine, over the same seeds."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence

from dudx.engines import engines
from dudx.lab.paper.experiments import claims, trained
from dudx.lab.paper.experiments.base import Experiment, named
from dudx.lab.paper.experiments.claims import Claim, Lost
from dudx.lab.paper.experiments.data import Data
from dudx.lab.paper.experiments.profile import Profile
from dudx.lab.paper.experiments.published import SCALE, published
from dudx.lab.paper.experiments.statistics import TEST, best, compare
from dudx.lab.paper.experiments.tables import Cell, Table, as_published, counted, spread
from dudx.lab.problems import problem as problem_named
from dudx.lab.run.engines import engine_label
from dudx.lab.sweep.runs import Run

#: Equations with derivatives of one order, on which eFD is FD and is not run twice.
ONE_ORDER = ("poisson",)
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
    plan = profile.trainings(problem)
    return [
        named(profile.settings(problem, engine=engine, seed=seed, **plan.settings))
        for engine in plan.engines
        for seed in range(plan.seeds)
    ]


def title(problem: str) -> str:
    """What a problem is called in tables."""
    found = problem_named(problem)
    return found.label or found.title


def label(problem: str, engine: str) -> str:
    """What an engine is called in the table of a problem."""
    return "FD (eq. eFD)" if engine == "fd" and problem in ONE_ORDER else engine_label(engine)


def in_order(names: Iterable[str]) -> list[str]:
    """Engines each once, in the order of tables: ours, then those of users."""
    known = list(engines())
    return sorted(set(names), key=lambda name: (known.index(name) if name in known else len(known), name))


def experiment(problem: str, place: int, *notes: str, sfd_is_better: bool = False) -> Experiment:
    """The table of a problem, and what the paper claims of it, if it does: of sFD, that it is better or worse."""
    return Experiment(
        f"table-{problem}",
        f"{title(problem)}: errors by engine",
        trained.collect_runs,
        runs=lambda profile: runs(profile, problem),
        tables=lambda data: [_table(data, problem, notes)],
        claims=lambda data: _claims(data, problem, sfd_is_better),
        place=place,
    )


def _table(data: Data, problem: str, notes: Sequence[str]) -> Table:
    rows = trained.read(data)
    used, theirs = in_order(row["engine"] for row in rows), published(f"table-{problem}")
    bold = {
        metric: best({engine: trained.by_seed(trained.where(rows, engine=engine), metric) for engine in used})
        for metric in METRICS
    }
    lines = []
    for engine in used:
        mine = trained.where(rows, engine=engine)
        line: list[Cell | str] = [label(problem, engine)]
        for metric, (_, digits, factor) in METRICS.items():
            values = list(trained.by_seed(mine, metric).values())
            line.append(Cell(spread(values, digits, factor), engine in bold[metric]))
            line.append(as_published(theirs.get(engine, {}).get(metric), digits))
        lines.append([*line, counted(mine)])
    headings = [text for heading, _, _ in METRICS.values() for text in (heading, "published")]
    return Table(
        f"{title(problem)}: mean ± standard deviation over the seeds.",
        ["method", *headings, "finished"],
        lines,
        [f"Ours: {trained.scale(data, [row['name'] for row in rows])}. Published: {SCALE}.", EMPHASIS, SMAPE, *notes],
    )


def _claims(data: Data, problem: str, sfd_is_better: bool) -> list[Claim]:
    rows, theirs = trained.read(data), published(f"table-{problem}")
    if not theirs:
        return []
    errors = {e: trained.by_seed(trained.where(rows, engine=e)) for e in in_order(row["engine"] for row in rows)}

    def numbers(*engines: str) -> str:
        return ", ".join(f"{engine_label(e)} {theirs[e]['l2_relative'][0]:.2f} %" for e in engines if e in theirs)

    def lost(engine: str) -> Lost:
        return Lost(*(trained.lost(trained.where(rows, engine=each)) for each in (engine, "ad")))

    ad, found = errors.get("ad", {}), []
    for engine in ("fd", "efd"):
        if engine in errors:
            verdict, evidence = claims.same(compare(errors[engine], ad), *apart(errors[engine], ad), lost(engine))
            text = f"{title(problem)}: {label(problem, engine)} is as accurate as AD"
            found.append(Claim(text, numbers("ad", engine), verdict, f"{engine_label(engine)} / AD: {evidence}"))
    if "sfd" in errors:
        judged = claims.smaller if sfd_is_better else claims.larger
        verdict, evidence = judged(compare(errors["sfd"], ad), lost=lost("sfd"))
        text = f"{title(problem)}: sFD is {'more' if sfd_is_better else 'less'} accurate than AD"
        found.append(Claim(text, numbers("ad", "sfd"), verdict, f"sFD / AD: {evidence}"))
    return found


def apart(a: Mapping[int, float], b: Mapping[int, float]) -> tuple[float, float]:
    """The difference of the means, and the larger standard deviation."""
    if min(len(a), len(b)) < 2:
        return 0.0, 0.0
    deviations = [statistics.stdev(seeds.values()) for seeds in (a, b)]
    return statistics.fmean(a.values()) - statistics.fmean(b.values()), max(deviations)
