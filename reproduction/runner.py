"""Runs experiments: computes what is missing, adds it to the result tables, and draws tables and figures.

A folder holds the result tables (see `ResultStore`), `runs` with a folder per training run while it is computed, and
`tables` and `figures`, which are drawn from the result tables alone.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dudx.errors import InputError
from dudx.lab import file_formats
from dudx.lab.locks import locked
from dudx.lab.run.records import SCORES
from dudx.lab.sweep import politely_stopped, run_sweep
from dudx.lab.sweep.sweep_run import Outcome, Run, outcome
from reproduction.experiment import Experiment, ExperimentResults, Measurement
from reproduction.experiments import experiments
from reproduction.measurement_server import MeasurementServer
from reproduction.profile import Profile
from reproduction.record_table import holds
from reproduction.result_store import COMPARED_BY, ResultStore
from reproduction.suite_scores import suite_data

#: Results that are columns of an experiment's runs.
_METRICS = ("epochs", *SCORES, "seconds", "cpu_seconds", "curve", "prediction", "machine")


@dataclass
class Done:
    """Summary of a reproduction.

    Attributes:
        written: tables and figures that are new or have changed.
        failed: runs and measurements that diverged or failed, with the reason.
        incomplete: experiments whose work was stopped before it was complete.
    """

    written: list[Path] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    incomplete: list[str] = field(default_factory=list)


def chosen(names: Sequence[str]) -> list[Experiment]:
    """Return the experiments with these names, in the order of the report; "fig4" is accepted for "fig-4"."""
    by_letters = {name.replace("-", ""): name for name in experiments()}
    found = {by_letters.get(name.replace("-", ""), "") for name in names}
    if "" in found:
        unknown = next(name for name in names if name.replace("-", "") not in by_letters)
        raise InputError(f"There is no experiment named {unknown!r}; there are {', '.join(experiments())}.")
    return [experiment for name, experiment in experiments().items() if name in found]


def reproduce(
    experiments: Sequence[Experiment],
    profile: Profile,
    out: Path,
    workers: int | None = None,
    collect: bool = False,
    drawn: Path | None = None,
    data: Path | None = None,
) -> Done:
    """Compute what is missing and draw tables and figures; if stopped, the next call continues.

    Training runs go through a sweep, several at a time. Measurements follow one at a time, so that they do not disturb
    each other.

    Args:
        experiments: what to reproduce; experiments share the runs that they have in common.
        profile: seeds, settings and sizes.
        out: folder of the result tables and of the run folders.
        workers: as for `run_sweep`.
        collect: run nothing, and draw what there are results for; other runs count as missing.
        drawn: folder of `tables` and `figures`, if not `out`.
        data: folder of the benchmark suite's data files, to score networks whose run folders are in `out` by.
    """
    suite = None if data is None else suite_data(data)
    with sole_user(out):
        store, predicted = ResultStore(out), needing_prediction(profile)
        # One seed of every engine before the next seed, so that work which is stopped early compares the engines.
        runs = distinct(run for e in experiments for run in sorted(e.runs(profile), key=lambda run: run.settings.seed))
        left = [run for run in runs if store.run(run, run.name in predicted) is None]
        if collect:
            ended = [outcome(run, out / "runs" / run.name) for run in left]
        else:
            ended = run_sweep(left, out / "runs", workers) if left else []
        store.add_runs(((each, out / "runs" / each.name) for each in ended), predicted)
        if suite is not None:
            store.score_by_suite((out / "runs" / run.name for run in runs), suite)
        stopped = collect or any(each.status == "interrupted" for each in ended)
        wanted = [measurement for experiment in experiments for measurement in experiment.measurements(profile)]
        measured = measure_missing({m.key: m for m in wanted}, store, stopped)
        outcomes = {each.name: each for each in ended} | known_runs(runs, store)
        done = Done(failed=_failures(list(outcomes.values()), measured))
        for experiment in experiments:
            mine = [outcomes[run.name] for run in experiment.runs(profile)]
            interrupted = [each.status == "interrupted" for each in mine]
            lacking = any(m.key not in measured for m in experiment.measurements(profile))
            if lacking or (all if collect and mine else any)(interrupted):
                done.incomplete.append(experiment.name)
            else:
                results = results_of(experiment, profile, store, outcomes, measured)
                done.written += draw(experiment, results, drawn or out, newer_than=store.files)
    return done


def draw_from_results(
    experiments: Sequence[Experiment], profile: Profile, folder: Path, drawn: Path
) -> tuple[dict[str, ExperimentResults], list[Path]]:
    """Draw the tables and figures of those experiments that the result tables of a folder have results for.

    Returns:
        The results by experiment, and the files that have changed.
    """
    store, found, written = ResultStore(folder), dict[str, ExperimentResults](), list[Path]()
    for experiment in experiments:
        runs, wanted = experiment.runs(profile), experiment.measurements(profile)
        outcomes, measured = known_runs(runs, store), settled(wanted, store)
        if (runs and not outcomes) or len(measured) < len({m.key for m in wanted}) or not (runs or wanted):
            continue
        if experiment.needs_prediction and any(not each.result["prediction"] for each in outcomes.values()):  # type: ignore[index]
            continue
        found[experiment.name] = results_of(experiment, profile, store, outcomes, measured)
        written += draw(experiment, found[experiment.name], drawn)
    return found, written


@contextmanager
def sole_user(folder: Path) -> Iterator[None]:
    """Lock the result tables of a folder, which is made if necessary."""
    file_formats.make_folder(folder)
    with locked(folder / "reproduce.lock"):
        yield


def distinct(runs: Iterable[Run]) -> list[Run]:
    """Return each run once; a run's name follows from its settings."""
    return list({run.name: run for run in runs}.values())


def needing_prediction(profile: Profile) -> set[str]:
    """Names of the runs whose predicted solution is kept."""
    return {run.name for e in experiments().values() if e.needs_prediction for run in e.runs(profile)}


def known_runs(runs: Iterable[Run], store: ResultStore) -> dict[str, Outcome]:
    """Outcomes of the runs that are in the result tables, by name."""
    found = {run.name: store.run(run) for run in runs}
    return {name: known for name, known in found.items() if known is not None}


# -- measurements ------------------------------------------------------------------------------------------------------


def measure_missing(
    wanted: Mapping[str, Measurement], store: ResultStore, stopped: bool = False
) -> dict[str, Mapping[str, Any]]:
    """Measure what is not in the result tables; results by key, incomplete if the work is stopped."""
    results = settled(wanted.values(), store)
    missing = [measurement for key, measurement in wanted.items() if key not in results]
    if missing and not stopped:
        try:
            with politely_stopped(), MeasurementServer() as server:
                for number, measurement in enumerate(missing, 1):
                    result = _skipped(measurement, results)
                    if result is None:
                        result = server.result(measurement.function, measurement.arguments)
                        store.add_measurement(measurement, result)
                        result = store.measured(measurement) or result
                    results[measurement.key] = result
                    status = result["status"] + (f": {result['reason']}" if "reason" in result else "")
                    print(f"{number}/{len(missing)}  {measurement.name}  {status}", file=sys.stderr, flush=True)
        except KeyboardInterrupt:
            pass  # the results that are missing then tell the rest
    return results


def settled(wanted: Iterable[Measurement], store: ResultStore) -> dict[str, Mapping[str, Any]]:
    """Results that need no measurement, by key: known ones, and those skipped because of a known one."""
    results: dict[str, Mapping[str, Any]] = {}
    for measurement in wanted:
        result = store.measured(measurement) or _skipped(measurement, results)
        if result is not None:
            results[measurement.key] = result
    return results


def _skipped(measurement: Measurement, results: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any] | None:
    if measurement.after is None or measurement.after.key not in results:
        return None
    reason = measurement.skip_reason(results[measurement.after.key])
    return None if reason is None else {"status": "not tried", "reason": reason}


def _failures(outcomes: Sequence[Outcome], measured: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    lost = {o.name: o.reason or "its loss is not finite" for o in outcomes if o.status in ("diverged", "failed")}
    return lost | {key: result["reason"] for key, result in measured.items() if result["status"] == "failed"}


# -- results, tables, figures ------------------------------------------------------------------------------------------


def results_of(
    experiment: Experiment,
    profile: Profile,
    store: ResultStore,
    outcomes: Mapping[str, Outcome],
    measured: Mapping[str, Mapping[str, Any]],
) -> ExperimentResults:
    """Results of one experiment; a run without an outcome is missing."""
    rows = [
        {**run_row(run, outcomes.get(run.name)), "suite": store.suite_scores(run.name)}
        for run in experiment.runs(profile)
    ]
    wanted = experiment.measurements(profile)
    used = Counter(row["machine"] for row in rows if row["status"] in ("finished", "diverged"))
    used.update(store.machine_of(m) for m in wanted if m.key in store.table(m.table).records)
    machines = [{**store.machines[name], "count": used[name]} for name in sorted(filter(None, used))]
    if used[None]:
        machines.append({"count": used[None]})
    return ExperimentResults(rows, [(m.arguments, measured[m.key]) for m in wanted], machines)


def run_row(run: Run, ended: Outcome | None) -> dict[str, Any]:
    """Row of an experiment's runs, also for runs that failed or are missing."""
    result = (ended and ended.result) or {}
    status = "missing" if ended is None or ended.status == "interrupted" else ended.status
    return {
        "name": run.name,
        **{key: getattr(run.settings, key) for key in COMPARED_BY},
        "status": status,
        **{key: result.get(key) for key in _METRICS},
        "reason": ended.reason if ended else None,
        "settings": run.settings.model_dump(exclude_none=True),
    }


def draw(
    experiment: Experiment, results: ExperimentResults, out: Path, newer_than: Sequence[Path] | None = None
) -> list[Path]:
    """Write the tables and the figure of an experiment; return the files that have changed.

    Args:
        experiment: what to draw.
        results: its results.
        out: folder of `tables` and `figures`.
        newer_than: do not draw a figure again that is newer than these files.
    """
    written = []
    if experiment.tables is not None:
        tables = experiment.tables(results)
        texts = {f"{experiment.name}.md": f"# {experiment.title}\n\n" + "\n".join(t.markdown() for t in tables)}
        texts |= {"-".join([experiment.name, *filter(None, [table.name])]) + ".csv": table.csv() for table in tables}
        written += [path for name, text in texts.items() if write(path := out / "tables" / name, text.encode())]
    picture = out / "figures" / f"{experiment.name}.png"
    if experiment.figure is not None and (newer_than is None or _outdated(picture, newer_than)):
        with tempfile.TemporaryDirectory() as temporary:
            fresh = Path(temporary) / picture.name
            experiment.figure(results, fresh)
            if write(picture, fresh.read_bytes()):
                written.append(picture)
            else:
                picture.touch()  # newer than the results again
    return written


def write(path: Path, content: bytes) -> bool:
    """Write a file unless it holds the same content already; return whether it was written."""
    if holds(path, content):
        return False
    file_formats.make_folder(path.parent)
    file_formats.write_bytes(path, content)
    return True


def _outdated(path: Path, sources: Sequence[Path]) -> bool:
    return not path.exists() or path.stat().st_mtime < max(source.stat().st_mtime for source in sources)
