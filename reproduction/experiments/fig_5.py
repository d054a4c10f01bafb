"""Figure 5: error against the number of epochs between calibrations of the step."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dudx.lab.run.engine_table import engine_label
from dudx.lab.sweep.sweep_run import Run
from reproduction.analysis import claims, run_rows
from reproduction.analysis.claims import Claim, Lost, Ratio
from reproduction.analysis.figures import drawn, engine_style, panels, plain_log
from reproduction.analysis.statistics import Comparison, Seeds, compare, over_seeds
from reproduction.analysis.tables import Table, in_percent
from reproduction.experiment import Experiment, ExperimentResults, named
from reproduction.experiments.accuracy import title
from reproduction.profile import IntervalTrainings, Profile

#: Largest change of the error over the whole range that counts as "essentially flat", as a factor.
FLAT = 1.25
#: Smallest ratio between the ends of an axis of errors, so that small differences look small.
_RANGE = 2.5
#: Errors by engine, interval and seed.
Errors = dict[str, dict[int, Seeds]]
#: Problem and number format; each is a panel of the figure.
Panel = tuple[str, str]


def _runs(profile: Profile) -> list[Run]:
    return [
        named(profile.settings(problem, engine=engine, seed=seed, **_settings(plan, interval, format)))
        for problem, plan in profile.interval.items()
        for format, seeds in ([({"dtype": dtype}, n) for dtype, n in plan.formats.items()] or [({}, plan.seeds)])
        for engine in plan.engines
        for interval in plan.intervals
        for seed in plan.seed_numbers(seeds)
    ]


def _settings(plan: IntervalTrainings, interval: int, format: Mapping[str, Any]) -> dict[str, Any]:
    cheaper = plan.every_epoch if interval == 1 else {}
    return {**plan.settings, **format, **cheaper, "recalibrate": interval}


def _panels(rows: Sequence[Mapping[str, Any]]) -> dict[Panel, list[Mapping[str, Any]]]:
    """Group runs by problem and number format."""
    found: dict[Panel, list[Mapping[str, Any]]] = {}
    for row in rows:
        found.setdefault((row["problem"], row["dtype"]), []).append(row)
    return found


def _titles(panels: Iterable[Panel]) -> dict[Panel, str]:
    """Return the title of each panel, with the number format if there are several."""
    several = len({dtype for _, dtype in panels}) > 1
    return {panel: title(panel[0]) + f" in {panel[1]}" * several for panel in panels}


def _errors(rows: Sequence[Mapping[str, Any]]) -> Errors:
    found: Errors = {}
    for row in rows:
        found.setdefault(row["engine"], {}).setdefault(row["recalibrate"], {})
    for engine, intervals in found.items():
        for interval in intervals:
            intervals[interval] = run_rows.by_seed(run_rows.where(rows, engine=engine, recalibrate=interval))
    return found


# -- tables and figure ----------------------------------------------------------------------------------------------


def _tables(results: ExperimentResults) -> list[Table]:
    panels = _panels(results.runs)
    several = len({dtype for _, dtype in panels}) > 1
    return [
        _table(rows, name, "-".join(panel[: 1 + several]))
        for (panel, rows), name in zip(panels.items(), _titles(list(panels)).values(), strict=True)
    ]


def _table(rows: Sequence[Mapping[str, Any]], title: str, name: str) -> Table:
    intervals = sorted({row["recalibrate"] for row in rows})
    lines = []
    for engine, found in _errors(rows).items():
        line = [engine_label(engine)]
        for interval in intervals:
            mine = run_rows.where(rows, engine=engine, recalibrate=interval)
            lost, missing = run_rows.lost(mine), len(run_rows.missing(mine))
            text = in_percent(list(found.get(interval, {}).values()))
            line.append(text + f" ({lost} not finished)" * bool(lost) + f" ({missing} missing)" * bool(missing))
        lines.append(line)
    return Table(
        f"{title}: relative L2 error in per cent by recalibration interval in epochs, mean ± standard deviation; the "
        "picture has medians.",
        ["method", *map(str, intervals)],
        lines,
        [
            f"Ours: {run_rows.scale(rows, interval=False)}. Published as a picture: "
            "20 000 epochs, intervals from 1 to 10 000, 5 seeds.",
            *run_rows.missing_note(rows),
        ],
        name=name,
    )


def _figure(results: ExperimentResults, path: Path) -> None:
    shown = _panels(results.runs)
    titles = _titles(list(shown))
    columns = len({problem for problem, _ in shown})
    lines = -(-len(shown) // columns)
    with panels(path, lines, columns, (4.2 * columns, 3.8 * lines)) as (figure, grid):
        # Formats below each other, problems side by side.
        places = [(dtype, problem) for dtype in _each(shown, 1) for problem in _each(shown, 0)]
        axes = [ax for line in grid for ax in line]
        for ax, (dtype, problem) in zip(axes, places, strict=True):
            errors = _errors(shown.get((problem, dtype), []))
            for engine, found in errors.items():
                colour, marker = engine_style(engine)
                there = {i: [100 * error for error in seeds.values()] for i, seeds in sorted(found.items()) if seeds}
                for interval, values in there.items():
                    ax.plot([interval] * len(values), values, marker, color=colour, markersize=3, alpha=0.35)
                # The axis is logarithmic: a mean there is that of the worst seed.
                medians = [statistics.median(values) for values in there.values()]
                ax.plot(list(there), medians, color=colour, marker=marker, markersize=5, label=engine_label(engine))
            plain_log(ax, x=sorted({interval for found in errors.values() for interval in found}))
            if drawn(ax):
                low, high = ax.get_ylim()
                widest = max(1.0, _RANGE / (high / low)) ** 0.5
                ax.set_ylim(low / widest, high * widest)
            ax.set(xlabel="recalibration interval [epochs]", title=titles.get((problem, dtype), ""))
        for line in grid:
            line[0].set_ylabel("relative L2 error [%], median and seeds")
        entries = {label: handle for ax in axes for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)}
        figure.legend(list(entries.values()), list(entries), loc="outside lower center", ncols=len(entries))


def _each(panels: Iterable[Panel], place: int) -> list[str]:
    return list(dict.fromkeys(panel[place] for panel in panels))


# -- claims --------------------------------------------------------------------------------------------------------


def _change(found: Mapping[int, Seeds]) -> Comparison | None:
    """Factor by which the error changes from the shortest interval to the longest but one, from one slope per seed."""
    intervals = sorted(found)[:-1]
    seeds = set.intersection(*(set(found[interval]) for interval in intervals)) if intervals else set()
    if len(intervals) < 2 or len(seeds) < 2:
        return None
    x = np.log(intervals)
    slopes = [np.polyfit(x, np.log([found[i][seed] for i in intervals]), 1)[0] for seed in sorted(seeds)]
    return over_seeds(np.array(slopes) * np.ptp(x))


def _lost_by_interval(rows: Sequence[Mapping[str, Any]]) -> list[int]:
    """Number of runs that did not finish, by interval."""
    return [run_rows.lost(run_rows.where(rows, recalibrate=i)) for i in sorted({row["recalibrate"] for row in rows})]


def _claims(results: ExperimentResults) -> list[Claim]:
    shown = _panels(results.runs)
    found = []
    for (panel, rows), name in zip(shown.items(), _titles(list(shown)).values(), strict=True):
        errors = _errors(rows)
        found.append(_flat_claim(name, rows, errors))
        if panel[0] != "poisson" and "sfd" in errors:
            found.append(_failure_claim(name, run_rows.where(rows, engine="sfd"), errors["sfd"]))
    return found


def _flat_claim(name: str, rows: Sequence[Mapping[str, Any]], errors: Errors) -> Claim:
    intervals = sorted({interval for of_engine in errors.values() for interval in of_engine})
    before_last = [row for row in rows if row["recalibrate"] < intervals[-1]]
    changes = {engine: _change(of_engine) for engine, of_engine in errors.items()}
    by_engine = "; ".join(f"{engine_label(engine)} {change or 'too few runs'}" for engine, change in changes.items())
    evidence = f"change over the range: {by_engine}; t-test of the slopes by seed; flat is a factor below {FLAT:g}"
    lost = {engine: run_rows.lost(run_rows.where(before_last, engine=engine)) for engine in errors}
    if any(lost.values()):
        counted = "; ".join(f"{engine_label(engine)} {count}" for engine, count in lost.items())
        evidence = f"{evidence}; runs that did not finish: {counted}"
    missing = run_rows.missing(before_last)
    verdict = claims.flat(list(changes.values()), FLAT, not missing, sum(lost.values()))
    text = f"{name}: the error is flat in the recalibration interval up to {intervals[-2]} epochs"
    known = [change for change in changes.values() if change is not None]
    widest = max(known, key=lambda change: abs(np.log(change.ratio)), default=None)
    ratio = None if widest is None else Ratio("largest change", widest.ratio, widest.low, widest.high, 1.0)
    return Claim(text, "essentially flat", verdict, evidence, ratio=ratio, missing=missing)


def _failure_claim(name: str, rows: Sequence[Mapping[str, Any]], errors: Mapping[int, Seeds]) -> Claim:
    before, last = sorted(errors)[-2:]
    missing = run_rows.missing(row for row in rows if row["recalibrate"] in (before, last))
    compared = compare(errors[last], errors[before])
    finding = claims.larger(compared, lost=Lost(*reversed(_lost_by_interval(rows)[-2:])), complete=not missing)
    text = f"{name}: sFD fails when steps are calibrated twice in a training"
    return finding.claim(text, "fails", f"interval {last} / {before}", compared, missing=missing)


EXPERIMENT = Experiment(
    "fig-5",
    "Error against the recalibration interval",
    runs=_runs,
    tables=_tables,
    figure=_figure,
    claims=_claims,
    position=10,
)
