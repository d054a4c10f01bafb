"""Accuracy tables: one problem solved with every engine, over the same seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes

from dudx.lab.problems import problem as problem_named
from dudx.lab.run.engine_table import engine_label, in_table_order
from dudx.lab.sweep.sweep_run import Run
from reproduction.analysis import claims, error_curves, run_rows
from reproduction.analysis.claims import Claim, Lost
from reproduction.analysis.error_curves import Progress
from reproduction.analysis.figures import engine_style, panels, plain_log
from reproduction.analysis.power import power_table
from reproduction.analysis.published import SCALE, published
from reproduction.analysis.statistics import TEST, Seeds, best, compare
from reproduction.analysis.suite_table import suite_tables
from reproduction.analysis.table_figures import TableRow, draw_rows, legend_text, ticks
from reproduction.analysis.tables import Cell, Table, as_published, counted, in_percent, median, spread
from reproduction.experiment import Experiment, ExperimentResults, named
from reproduction.profile import Profile

#: Problems with derivatives of one order only, where eFD equals FD and is not run.
ONE_ORDER = ("poisson",)
#: Metric: heading, digits, and factor from the stored value to the one shown.
METRICS = {
    "smape": ("SMAPE (%)", 2, 1.0),
    "l2_relative": ("L2 relative (%)", 2, 100.0),
    "max_error": ("max error", 3, 1.0),
}
SMAPE = (
    "SMAPE counts 200 % wherever the reference is 0 and the prediction is not exactly 0: it has a floor that depends "
    "on how many of the scored points lie there, and our points are not the paper's."
)
EMPHASIS = (
    f"Bold: the best error and those that do not differ significantly from it, if any other does ({TEST}, 5 % level)."
)
#: Shares of the training at which errors are shown.
_MARKS = (0.1, 0.25, 0.5, 1.0)
_WORDS: dict[Progress, str] = {"cpu_seconds": "equal CPU time", "epoch": "equal steps"}
_UNITS: dict[Progress, str] = {"cpu_seconds": "s", "epoch": "steps"}


def runs(profile: Profile, problem: str) -> list[Run]:
    """Return the runs of a problem: engines × seeds."""
    plan = profile.trainings(problem)
    return [
        named(profile.settings(problem, engine=engine, seed=seed, **plan.settings))
        for engine in plan.engines
        for seed in plan.seed_numbers()
    ]


def title(problem: str) -> str:
    """Return the label of a problem in tables."""
    found = problem_named(problem)
    return found.label or found.title


def label(problem: str, engine: str) -> str:
    """Return the label of an engine in the table of a problem."""
    return "FD (eq. eFD)" if engine == "fd" and problem in ONE_ORDER else engine_label(engine)


def experiment(problem: str, position: int, *notes: str, sfd_is_better: bool = False) -> Experiment:
    """Declare the accuracy table of a problem, and the claims on it if the paper has any.

    Args:
        problem: its name.
        position: in the report.
        notes: remarks below the table.
        sfd_is_better: whether sFD is claimed to be more accurate than AD, or less.
    """
    return Experiment(
        f"table-{problem}",
        f"{title(problem)}: errors by engine",
        runs=lambda profile: runs(profile, problem),
        tables=lambda results: _tables(results, problem, notes),
        figure=lambda results, path: _figure(results, problem, path),
        claims=lambda results: _claims(results, problem, sfd_is_better),
        position=position,
    )


class _Errors:
    """Errors of a problem's runs: at the end and, where they were evaluated during training, at any mark."""

    def __init__(self, results: ExperimentResults):
        self.rows = results.runs
        self.engines = in_table_order(row["engine"] for row in self.rows)
        self._curves = error_curves.error_curves(results.runs)
        finished = [row for row in self.rows if row["status"] == "finished"]
        curves = [self._curves[row["name"]] for row in finished if row["name"] in self._curves]
        #: CPU seconds and steps that all runs reached; empty where they were not evaluated often enough.
        self.ends: dict[Progress, float] = {
            progress: error_curves.common_end(curves, progress)
            for progress in _WORDS
            if len(curves) == len(finished) and all(len(curve) > len(_MARKS) for curve in curves)
        }
        self.ends = {progress: at for progress, at in self.ends.items() if at}

    def of(self, engine: str) -> list[Mapping[str, Any]]:
        return run_rows.where(self.rows, engine=engine)

    def last(self, engine: str, metric: str = "l2_relative") -> Seeds:
        return run_rows.by_seed(self.of(engine), metric)

    def at(self, engine: str, progress: Progress, mark: float) -> Seeds:
        """Errors at a mark of the runs that reached it, by seed."""
        curves = {r["seed"]: self.curve(r["name"]) for r in self.of(engine) if r["status"] == "finished"}
        found = {seed: error_curves.error_at(curve, progress, mark) for seed, curve in curves.items()}
        return {seed: error for seed, error in found.items() if error is not None}

    def has(self, metric: str) -> bool:
        """Whether all finished runs have a metric; a mean over some of the seeds would not compare with the others."""
        ended = [set(self.last(engine, "l2_relative")) for engine in self.engines]
        return any(ended) and [set(self.last(engine, metric)) for engine in self.engines] == ended

    def compared(self, engine: str) -> Seeds:
        """Errors that claims are judged by: after equally many steps, as published; else at the end."""
        return self.at(engine, "epoch", self.ends["epoch"]) if "epoch" in self.ends else self.last(engine)

    def curve(self, name: str) -> error_curves.ErrorCurve:
        return self._curves.get(name, ())


# -- tables and figure -------------------------------------------------------------------------------------------------


def _tables(results: ExperimentResults, problem: str, notes: Sequence[str]) -> list[Table]:
    found = _Errors(results)
    tables = [_final_errors(found, problem, notes), *suite_tables(results.runs, problem, title(problem), label)]
    tables += [_errors_during_training(found, problem, progress, at) for progress, at in found.ends.items()]
    if published(f"table-{problem}"):
        compared = {engine: found.compared(engine) for engine in found.engines}
        tables.append(power_table(compared, problem, asked=len({row["seed"] for row in found.rows})))
    return tables


def _final_errors(found: _Errors, problem: str, notes: Sequence[str]) -> Table:
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
    remarks = [f"Ours: {run_rows.scale(found.rows)}. Published: {SCALE}.", EMPHASIS, *[SMAPE] * ("smape" in shown)]
    remarks += [*notes, *run_rows.missing_note(found.rows)]
    return Table(
        f"{title(problem)}: mean ± standard deviation over the seeds.",
        ["method", *headings, "finished"],
        lines,
        remarks,
    )


def _errors_during_training(found: _Errors, problem: str, progress: Progress, end: float) -> Table:
    marks = [share * end for share in _MARKS]
    errors = {engine: [found.at(engine, progress, mark) for mark in marks] for engine in found.engines}
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
    unit = _UNITS[progress]
    return Table(
        f"{title(problem)} at {_WORDS[progress]}: relative L2 error in per cent, median over the seeds.",
        ["method", *(f"{mark:g} {unit}" for mark in marks), "mean ± sd", "seeds"],
        lines,
        [
            "An error at a mark is the geometric mean of the evaluations in the last tenth before it, as each draw of "
            "points moves a network a little. The last mark is one that all runs reached."
        ],
        name="time" if progress == "cpu_seconds" else "steps",
    )


def _figure(results: ExperimentResults, problem: str, path: Path) -> None:
    """The table as a picture, one panel per metric, and the error during training."""
    found, theirs = _Errors(results), published(f"table-{problem}")
    shown = [metric for metric in METRICS if found.has(metric)] or ["l2_relative"]
    with_curves = any(found.curve(row["name"]) for row in found.rows)
    count = len(shown) + with_curves
    columns = min(2, count)
    lines = -(-count // columns)
    size = (5.4 * columns, 0.5 + (0.9 + 0.55 * len(found.engines)) * lines)
    with panels(path, lines, columns, size) as (figure, grid):
        axes = [ax for line in grid for ax in line]
        for ax, metric in zip(axes, shown, strict=False):
            heading, _, factor = METRICS[metric]
            rows = [
                TableRow(
                    label(problem, engine),
                    *engine_style(engine),
                    [factor * value for value in found.last(engine, metric).values()],
                    theirs.get(engine, {}).get(metric),
                )
                for engine in found.engines
            ]
            draw_rows(ax, rows, heading)
        if with_curves:
            _draw_curves(axes[len(shown)], found)
        for empty in axes[count:]:
            empty.set_axis_off()
        figure.supxlabel(legend_text(), fontsize="small")


def _draw_curves(axes: Axes, found: _Errors) -> None:
    progress: Progress = "cpu_seconds" if "cpu_seconds" in found.ends else "epoch"
    every = []
    for row in found.rows:
        curve = [(at, 100 * each.error) for each in found.curve(row["name"]) if (at := getattr(each, progress))]
        if curve and row["status"] == "finished":
            axes.plot(*zip(*curve, strict=True), color=engine_style(row["engine"])[0], linewidth=0.8, alpha=0.7)
            every += [at for at, _ in curve]
    plain_log(axes, x=ticks(min(every), max(every)) if every else ())
    axes.set(xlabel="CPU seconds" if progress == "cpu_seconds" else "steps", ylabel="relative L2 error [%]")


# -- claims ------------------------------------------------------------------------------------------------------------


def _claims(results: ExperimentResults, problem: str, sfd_is_better: bool) -> list[Claim]:
    found, theirs = _Errors(results), published(f"table-{problem}")
    if not theirs:
        return []
    at = f" after {found.ends['epoch']:g} steps" if "epoch" in found.ends else ""
    claimed_ratio = theirs["sfd"]["l2_relative"][0] / theirs["ad"]["l2_relative"][0]

    def numbers(*engines: str) -> str:
        return ", ".join(f"{engine_label(e)} {theirs[e]['l2_relative'][0]:.2f} %" for e in engines if e in theirs)

    def lost(engine: str) -> Lost:
        return Lost(*(run_rows.lost(found.of(each)) for each in (engine, "ad")))

    def ratio(engine: str) -> str:
        """Words for the ratio that is tested, with the ratio after equal time where it is known."""
        timed = found.ends.get("cpu_seconds")
        pairs = [found.at(e, "cpu_seconds", timed) for e in (engine, "ad")] if timed else []
        other = compare(*pairs) if pairs else None
        also = f" (after {timed:g} s of a processor: {other.ratio:.3g}×)" if other else ""
        return f"{engine_label(engine)} / AD{at}{also}"

    claimed = []
    for engine in (engine for engine in ("fd", "efd", "sfd") if engine in found.engines):
        missing = run_rows.missing([*found.of(engine), *found.of("ad")])
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
            first, second = (run_rows.collapsed(found.of(each)) for each in (engine, "ad"))
            finding = finding.collapsed(first, second, compared.pairs)
        claimed.append(finding.claim(text, numbers("ad", engine), ratio(engine), compared, size, missing))
    return claimed
