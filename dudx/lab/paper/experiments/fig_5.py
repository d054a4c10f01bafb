"""How often steps should be calibrated again."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dudx.lab.paper.experiments import claims, trained
from dudx.lab.paper.experiments.accuracy import title
from dudx.lab.paper.experiments.base import Experiment, named
from dudx.lab.paper.experiments.claims import Claim, Lost, Verdict
from dudx.lab.paper.experiments.data import Data
from dudx.lab.paper.experiments.pictures import drawn, engine_style, panels, plain_log
from dudx.lab.paper.experiments.profile import Profile
from dudx.lab.paper.experiments.statistics import Comparison, Seeds, compare, over_seeds
from dudx.lab.paper.experiments.tables import Table, spread
from dudx.lab.run.engines import engine_label
from dudx.lab.sweep.runs import Run

#: What "essentially flat" is taken to mean: the error changes by less than this factor over the whole range.
FLAT = 1.25
_RANGE = 2.5  # between the ends of an axis of errors at least, so that small differences look small
#: Engine to interval to errors by seed.
Errors = dict[str, dict[int, Seeds]]


def _runs(profile: Profile) -> list[Run]:
    return [
        named(profile.settings(problem, engine=engine, recalibrate=interval, seed=seed, **plan.settings))
        for problem, plan in profile.interval.items()
        for engine in plan.engines
        for interval in plan.intervals
        for seed in range(plan.seeds)
    ]


def _errors(rows: Sequence[Mapping[str, Any]], problem: str) -> Errors:
    found: Errors = {}
    for row in trained.where(rows, problem=problem):
        found.setdefault(row["engine"], {}).setdefault(int(row["recalibrate"]), {})
    for engine, intervals in found.items():
        for interval in intervals:
            mine = trained.where(rows, problem=problem, engine=engine, recalibrate=interval)
            intervals[interval] = trained.by_seed(mine)
    return found


def _problems(rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    return {problem: title(problem) for problem in dict.fromkeys(row["problem"] for row in rows)}


# -- what a reader sees --------------------------------------------------------------------------------------------


def _tables(data: Data) -> list[Table]:
    rows = trained.read(data)
    return [_table(data, trained.where(rows, problem=problem), problem) for problem in _problems(rows)]


def _table(data: Data, rows: Sequence[Mapping[str, Any]], problem: str) -> Table:
    intervals = sorted({int(row["recalibrate"]) for row in rows})
    lines = []
    for engine, found in _errors(rows, problem).items():
        line = [engine_label(engine)]
        for interval in intervals:
            lost = trained.lost(trained.where(rows, engine=engine, recalibrate=interval))
            text = spread(list(found.get(interval, {}).values()), 2, 100)
            line.append(text + (f" ({lost} not finished)" if lost else ""))
        lines.append(line)
    return Table(
        f"{title(problem)}: relative L2 error in per cent by recalibration interval in epochs, mean ± standard "
        "deviation.",
        ["method", *map(str, intervals)],
        lines,
        [
            f"Ours: {trained.scale(data, [row['name'] for row in rows], interval=False)}. Published as a picture: "
            "20 000 epochs, intervals from 1 to 10 000, 5 seeds."
        ],
        name=problem,
    )


def _figure(data: Data, path: Path) -> None:
    rows = trained.read(data)
    problems = _problems(rows)
    with panels(path, 1, len(problems), (4.2 * len(problems), 3.8)) as (figure, (axes,)):
        for ax, (problem, name) in zip(axes, problems.items(), strict=True):
            errors = _errors(rows, problem)
            for engine, found in errors.items():
                colour, marker = engine_style(engine)
                there = {i: [100 * error for error in seeds.values()] for i, seeds in sorted(found.items()) if seeds}
                for interval, values in there.items():
                    ax.plot([interval] * len(values), values, marker, color=colour, markersize=3, alpha=0.35)
                means = [statistics.fmean(values) for values in there.values()]
                ax.plot(list(there), means, color=colour, marker=marker, markersize=5, label=engine_label(engine))
            plain_log(ax, x=sorted({interval for found in errors.values() for interval in found}))
            if drawn(ax):
                low, high = ax.get_ylim()
                widest = max(1.0, _RANGE / (high / low)) ** 0.5
                ax.set_ylim(low / widest, high * widest)
            ax.set(xlabel="recalibration interval [epochs]", title=name)
        axes[0].set_ylabel("relative L2 error [%]")
        entries = {label: handle for ax in axes for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)}
        figure.legend(list(entries.values()), list(entries), loc="outside lower center", ncols=len(entries))


# -- claims --------------------------------------------------------------------------------------------------------


def _change(found: Mapping[int, Seeds]) -> Comparison | None:
    """By what factor the error changes from the shortest interval to the longest but one: a slope for each seed."""
    intervals = sorted(found)[:-1]
    seeds = set.intersection(*(set(found[interval]) for interval in intervals)) if intervals else set()
    if len(intervals) < 2 or len(seeds) < 2:
        return None
    x = np.log(intervals)
    slopes = [np.polyfit(x, np.log([found[i][seed] for i in intervals]), 1)[0] for seed in sorted(seeds)]
    return over_seeds(np.array(slopes) * np.ptp(x))


def _lost(rows: Sequence[Mapping[str, Any]], problem: str, engine: str) -> list[int]:
    """How many runs did not finish, by interval."""
    mine = trained.where(rows, problem=problem, engine=engine)
    return [trained.lost(trained.where(mine, recalibrate=i)) for i in sorted({row["recalibrate"] for row in mine})]


def _flat(change: Comparison | None, lost: int) -> Verdict:
    if change is None or lost:
        return "undecided"
    if 1 / FLAT <= change.ratio <= FLAT:
        return "held" if change.narrow else "undecided"
    return "did not hold" if change.significant else "undecided"


def _claims(data: Data) -> list[Claim]:
    rows = trained.read(data)
    found = []
    for problem, name in _problems(rows).items():
        errors = _errors(rows, problem)
        changes = {engine: _change(intervals) for engine, intervals in errors.items()}
        lost = {engine: _lost(rows, problem, engine) for engine in errors}
        told = "; ".join(f"{engine_label(engine)} {change or 'too few runs'}" for engine, change in changes.items())
        longest = sorted({interval for intervals in errors.values() for interval in intervals})
        text = f"{name}: the error is flat in the recalibration interval up to {longest[-2]} epochs"
        evidence = f"change over the range: {told}; t-test of the slopes by seed; flat is a factor below {FLAT:g}"
        if any(any(counts[:-1]) for counts in lost.values()):
            counted = "; ".join(f"{engine_label(engine)} {sum(counts[:-1])}" for engine, counts in lost.items())
            evidence = f"{evidence}; runs that did not finish: {counted}"
        verdict = _together([_flat(change, sum(lost[engine][:-1])) for engine, change in changes.items()])
        found.append(Claim(text, "essentially flat", verdict, evidence))
        if problem != "poisson" and "sfd" in errors:
            before, last = sorted(errors["sfd"])[-2:]
            ends = Lost(*reversed(lost["sfd"][-2:]))
            verdict, evidence = claims.larger(compare(errors["sfd"][last], errors["sfd"][before]), lost=ends)
            text = f"{name}: sFD fails when steps are calibrated twice in a training"
            found.append(Claim(text, "fails", verdict, f"interval {last} / {before}: {evidence}"))
    return found


def _together(verdicts: Sequence[Verdict]) -> Verdict:
    """One verdict of several."""
    if len(set(verdicts)) == 1:
        return verdicts[0]
    return "held in part" if "held" in verdicts else "undecided" if "undecided" in verdicts else "did not hold"


EXPERIMENT = Experiment(
    "fig-5",
    "Error against the recalibration interval",
    trained.collect_runs,
    runs=_runs,
    tables=_tables,
    figure=_figure,
    claims=_claims,
    place=10,
)
