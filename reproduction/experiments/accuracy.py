"""The accuracy tables: the same problem with every engine, over the same seeds."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dudx.lab.problems import problem as problem_named
from dudx.lab.run.engine_table import engine_label, in_table_order
from dudx.lab.sweep.sweep_run import Run
from reproduction.experiments import claims, looks, trained
from reproduction.experiments.base import Experiment, named
from reproduction.experiments.claims import Claim, Lost
from reproduction.experiments.data import Data
from reproduction.experiments.pictures import engine_style, panels, plain_log
from reproduction.experiments.power import power_table
from reproduction.experiments.profile import Profile
from reproduction.experiments.published import SCALE, published
from reproduction.experiments.statistics import TEST, Seeds, best, compare
from reproduction.experiments.tables import Cell, Table, as_published, counted, in_percent, median, spread

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
#: Shares of the way at which errors are shown.
_MARKS = (0.1, 0.25, 0.5, 1.0)
_WORDS: dict[looks.Measure, str] = {"cpu_seconds": "equal CPU time", "epoch": "equal steps"}
_UNITS: dict[looks.Measure, str] = {"cpu_seconds": "s", "epoch": "steps"}


def runs(profile: Profile, problem: str) -> list[Run]:
    """The runs of a problem."""
    plan = profile.trainings(problem)
    return [
        named(profile.settings(problem, engine=engine, seed=seed, **plan.settings))
        for engine in plan.engines
        for seed in plan.seed_numbers()
    ]


def title(problem: str) -> str:
    """What a problem is called in tables."""
    found = problem_named(problem)
    return found.label or found.title


def label(problem: str, engine: str) -> str:
    """What an engine is called in the table of a problem."""
    return "FD (eq. eFD)" if engine == "fd" and problem in ONE_ORDER else engine_label(engine)


def experiment(problem: str, place: int, *notes: str, sfd_is_better: bool = False) -> Experiment:
    """The table of a problem, and what the paper claims of it, if it does: of sFD, that it is better or worse."""
    return Experiment(
        f"table-{problem}",
        f"{title(problem)}: errors by engine",
        trained.collect_runs,
        runs=lambda profile: runs(profile, problem),
        tables=lambda data: _tables(data, problem, notes),
        figure=lambda data, path: _figure(data, problem, path),
        claims=lambda data: _claims(data, problem, sfd_is_better),
        place=place,
    )


class _Errors:
    """The errors of a problem's runs: in the end and, where runs looked on their way, at any mark."""

    def __init__(self, data: Data):
        self.rows = trained.read(data)
        self.engines = in_table_order(row["engine"] for row in self.rows)
        self._ways = looks.read(data)
        finished = [row for row in self.rows if row["status"] == "finished"]
        there = [self._ways[row["name"]] for row in finished if row["name"] in self._ways]
        #: How far all runs came; nothing where they did not look often enough to tell.
        self.ends: dict[looks.Measure, float] = {
            measure: looks.common_end(there, measure)
            for measure in _WORDS
            if len(there) == len(finished) and all(len(way) > len(_MARKS) for way in there)
        }
        self.ends = {measure: at for measure, at in self.ends.items() if at}

    def of(self, engine: str) -> list[Mapping[str, Any]]:
        return trained.where(self.rows, engine=engine)

    def last(self, engine: str, metric: str = "l2_relative") -> Seeds:
        return trained.by_seed(self.of(engine), metric)

    def at(self, engine: str, measure: looks.Measure, mark: float) -> Seeds:
        """The errors at a mark of the runs that reached it, by seed."""
        ways = {int(r["seed"]): self._ways.get(r["name"], ()) for r in self.of(engine) if r["status"] == "finished"}
        found = {seed: looks.error_at(way, measure, mark) for seed, way in ways.items()}
        return {seed: error for seed, error in found.items() if error is not None}

    def has(self, metric: str) -> bool:
        """Whether all runs that ended tell it: a mean over some of the seeds does not belong beside the others."""
        ended = [set(self.last(engine, "l2_relative")) for engine in self.engines]
        return any(ended) and [set(self.last(engine, metric)) for engine in self.engines] == ended

    def compared(self, engine: str) -> Seeds:
        """What claims are judged by: errors after equally many steps, as published; else those in the end."""
        return self.at(engine, "epoch", self.ends["epoch"]) if "epoch" in self.ends else self.last(engine)

    def way(self, name: str) -> Sequence[looks.Look]:
        return self._ways.get(name, ())


# -- what a reader sees ------------------------------------------------------------------------------------------------


def _tables(data: Data, problem: str, notes: Sequence[str]) -> list[Table]:
    found = _Errors(data)
    tables = [_in_the_end(data, found, problem, notes)]
    tables += [_on_the_way(found, problem, measure, at) for measure, at in found.ends.items()]
    if published(f"table-{problem}"):
        compared = {engine: found.compared(engine) for engine in found.engines}
        tables.append(power_table(compared, problem, asked=len({row["seed"] for row in found.rows})))
    return tables


def _in_the_end(data: Data, found: _Errors, problem: str, notes: Sequence[str]) -> Table:
    theirs = published(f"table-{problem}")
    shown = [metric for metric in METRICS if found.has(metric)]
    bold = {metric: best({engine: found.last(engine, metric) for engine in found.engines}) for metric in shown}
    lines = []
    for engine in found.engines:
        line: list[Cell | str] = [label(problem, engine)]
        for metric in shown:
            _, digits, factor = METRICS[metric]
            values = list(found.last(engine, metric).values())
            is_error = metric == "l2_relative"
            text = in_percent(values) if is_error else spread(values, digits, factor)
            line += [Cell(text, engine in bold[metric]), *[median(values)] * is_error]
            line.append(as_published(theirs.get(engine, {}).get(metric), digits))
        lines.append([*line, counted(found.of(engine))])
    headings = []
    for metric in shown:
        headings += [METRICS[metric][0], *["median"] * (metric == "l2_relative"), "published"]
    scale = trained.scale(data, [row["name"] for row in found.rows])
    told = [f"Ours: {scale}. Published: {SCALE}.", EMPHASIS, *[SMAPE] * ("smape" in shown), *notes]
    told += trained.told_missing(found.rows)
    return Table(
        f"{title(problem)}: mean ± standard deviation over the seeds.", ["method", *headings, "finished"], lines, told
    )


def _on_the_way(found: _Errors, problem: str, measure: looks.Measure, end: float) -> Table:
    marks = [share * end for share in _MARKS]
    errors = {engine: [found.at(engine, measure, mark) for mark in marks] for engine in found.engines}
    bold = best({engine: at[-1] for engine, at in errors.items()})
    lines = [
        [
            label(problem, engine),
            *(median(list(seeds.values())) for seeds in at[:-1]),
            Cell(median(list(at[-1].values())), engine in bold),
            in_percent(list(at[-1].values())),
            str(len(at[-1])),
        ]
        for engine, at in errors.items()
    ]
    unit = _UNITS[measure]
    return Table(
        f"{title(problem)} at {_WORDS[measure]}: relative L2 error in per cent, median over the seeds.",
        ["method", *(f"{mark:g} {unit}" for mark in marks), "mean ± sd", "seeds"],
        lines,
        [
            "An error at a mark is the geometric mean of the looks in the last tenth before it, as each draw of points "
            "moves a network a little. The last mark is one that all runs reached."
        ],
        name="time" if measure == "cpu_seconds" else "steps",
    )


def _figure(data: Data, problem: str, path: Path) -> None:
    """Every seed a dot, its median a bar, the published mean a diamond; beside them the way there."""
    found, theirs = _Errors(data), published(f"table-{problem}")
    measure: looks.Measure = "cpu_seconds" if "cpu_seconds" in found.ends else "epoch"
    columns = 2 if any(found.way(row["name"]) for row in found.rows) else 1
    with panels(path, 1, columns, (5 * columns, 3.6)) as (_, (axes,)):
        dots = axes[0]
        for height, engine in enumerate(found.engines):
            colour, marker = engine_style(engine)
            errors = [100 * error for error in found.last(engine).values()]
            dots.plot(errors, [height] * len(errors), marker, color=colour, alpha=0.6, markersize=6)
            if errors:
                dots.plot(statistics.median(errors), height, "|", color=colour, markersize=18, markeredgewidth=2)
            if engine in theirs:
                dots.plot(theirs[engine]["l2_relative"][0], height, "D", color="0.4", markerfacecolor="none")
            for row in found.of(engine):
                way = [(at, 100 * look.error) for look in found.way(row["name"]) if (at := getattr(look, measure))]
                if way and row["status"] == "finished":
                    axes[1].plot(*zip(*way, strict=True), color=colour, linewidth=0.8, alpha=0.7)
        dots.set_yticks(range(len(found.engines)), [label(problem, engine) for engine in found.engines])
        dots.invert_yaxis()
        plain_log(dots, y=None)
        dots.set(xlabel="relative L2 error [%]\na mark a seed, a bar the median, ◇ published")
        for ways in axes[1:]:
            plain_log(ways)
            ways.set(xlabel="CPU seconds" if measure == "cpu_seconds" else "steps", ylabel="relative L2 error [%]")


# -- claims ------------------------------------------------------------------------------------------------------------


def _claims(data: Data, problem: str, sfd_is_better: bool) -> list[Claim]:
    found, theirs = _Errors(data), published(f"table-{problem}")
    if not theirs:
        return []
    at = f" after {found.ends['epoch']:g} steps" if "epoch" in found.ends else ""
    claimed_ratio = theirs["sfd"]["l2_relative"][0] / theirs["ad"]["l2_relative"][0]

    def numbers(*engines: str) -> str:
        return ", ".join(f"{engine_label(e)} {theirs[e]['l2_relative'][0]:.2f} %" for e in engines if e in theirs)

    def lost(engine: str) -> Lost:
        return Lost(*(trained.lost(found.of(each)) for each in (engine, "ad")))

    def ratio(engine: str) -> str:
        """What is compared; with the ratio after equal time where that is known, too."""
        timed = found.ends.get("cpu_seconds")
        pairs = [found.at(e, "cpu_seconds", timed) for e in (engine, "ad")] if timed else []
        other = compare(*pairs) if pairs else None
        also = f" (after {timed:g} s of a processor: {other.ratio:.3g}×)" if other else ""
        return f"{engine_label(engine)} / AD{at}{also}"

    claimed = []
    for engine in (engine for engine in ("fd", "efd", "sfd") if engine in found.engines):
        missing = trained.missing([*found.of(engine), *found.of("ad")])
        compared = compare(found.compared(engine), found.compared("ad"))
        if engine == "sfd":
            judged = claims.smaller if sfd_is_better else claims.larger
            finding = judged(compared, lost=lost(engine), claimed=claimed_ratio, complete=not missing)
            text = f"{title(problem)}: sFD is {'more' if sfd_is_better else 'less'} accurate than AD"
            size = claimed_ratio
        else:
            finding = claims.same(compared, lost(engine), complete=not missing)
            text = f"{title(problem)}: {label(problem, engine)} is as accurate as AD"
            size = theirs[engine]["l2_relative"][0] / theirs["ad"]["l2_relative"][0] if engine in theirs else None
        if compared is not None:
            first, second = (trained.collapsed(found.of(each)) for each in (engine, "ad"))
            finding = finding.collapsed(first, second, compared.pairs)
        claimed.append(finding.claim(text, numbers("ad", engine), ratio(engine), compared, size, missing))
    return claimed
