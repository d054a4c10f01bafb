"""Reproducing experiments: work that is missing is done, then data are collected, then tables and pictures are made.

A folder holds `runs` and `measurements`, which took time, `data`, which is all that is needed of them, and `tables` and
`figures`, which are made of nothing but the data. What is there and up to date is left alone. Runs that an archive
knows of are there too.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dudx.errors import InputError
from dudx.lab import file_formats
from dudx.lab.atomic_files import SUMS, digest, sums
from dudx.lab.locks import locked
from dudx.lab.run.environment import environment
from dudx.lab.sweep import politely_stopped, run_sweep
from dudx.lab.sweep.sweep_run import Outcome, Run, outcome
from reproduction.archive import Archive
from reproduction.experiments import Experiment, experiments
from reproduction.experiments.base import Found, Measurement
from reproduction.experiments.data import CONFIGS, ENVIRONMENT, Data, write, write_data
from reproduction.experiments.profile import Profile
from reproduction.measuring import Measuring

Result = Mapping[str, Any]

#: The key under which a measurement keeps the sum of all else it says.
_SUM = "sha256"


@dataclass
class Done:
    """What came of a reproduction."""

    #: Tables and figures that are new or have changed.
    written: list[Path] = field(default_factory=list)
    #: Runs and measurements that diverged or failed, and why.
    failed: dict[str, str] = field(default_factory=dict)
    #: Experiments whose work was stopped before it was complete.
    incomplete: list[str] = field(default_factory=list)


def chosen(names: Sequence[str]) -> list[Experiment]:
    """The experiments of these names, in the order of the paper; "fig4" is "fig-4"."""
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
    ray: str | None = None,
    gpus_per_run: float = 0.0,
    shown: bool = False,
) -> Done:
    """Bring the experiments to their tables and figures; stopped at any time, the next call goes on.

    Training runs go through a sweep, several at a time. Measurements follow one at a time, so that none disturbs
    another. Experiments that share work share its results. With `shown` nothing is run: tables and figures are made of
    the runs that are there, and the others count as missing; what lacks a measurement, or all runs, is left as it is.
    """
    file_formats.make_folder(out)
    with locked(out / "reproduce.lock"):
        # A seed of every engine before the next one, so that work which is stopped early compares the engines.
        runs = distinct(run for e in experiments for run in sorted(e.runs(profile), key=lambda run: run.settings.seed))
        outcomes = in_archive(experiments, profile, out)
        left = [run for run in runs if run.name not in outcomes]
        if shown:
            swept = [outcome(run, out / "runs" / run.name) for run in left]
        else:
            swept = run_sweep(left, out / "runs", workers, ray, gpus_per_run) if left else []
        outcomes |= {outcome.name: outcome for outcome in swept}
        if (archive := _archive(profile, out)) is not None:
            for ended in swept:
                archive.keep(ended, out / "runs" / ended.name)
        stopped = shown or any(outcome.status == "interrupted" for outcome in swept)
        wanted = [measurement for experiment in experiments for measurement in experiment.measurements(profile)]
        results = measured({m.file: m for m in wanted}, out / "measurements", stopped)
        done = Done(failed=_failures(list(outcomes.values()), results))
        for experiment in experiments:
            found = _found(experiment, profile, outcomes, results, out, shown)
            if found is None:
                done.incomplete.append(experiment.name)
            else:
                collect(experiment, found, out)
                done.written += present(experiment, out, out)
    return done


def from_data(experiments: Sequence[Experiment], folder: Path, out: Path) -> list[Path]:
    """Make tables and figures of data alone."""
    file_formats.make_folder(out)
    for experiment in experiments:
        if not Data(folder / "data" / experiment.name).there:
            raise InputError(f"There are no data of {experiment.name!r} in {str(folder / 'data')!r}.")
    return [path for experiment in experiments for path in present(experiment, folder, out, again=True)]


def with_data(folder: Path) -> list[Experiment]:
    """The experiments that a folder has data of."""
    found = [e for e in experiments().values() if Data(folder / "data" / e.name).there]
    if not found:
        raise InputError(
            f"There are no data in {str(folder / 'data')!r}; make some with dudx reproduce --out {folder}."
        )
    return found


def distinct(runs: Any) -> list[Run]:
    """Each run once; a run's name says what its settings are."""
    return list({run.name: run for run in runs}.values())


def in_archive(experiments: Iterable[Experiment], profile: Profile, out: Path) -> dict[str, Outcome]:
    """What the profile's archive knows of the runs, by name; but not of those whose folders an experiment needs."""
    archive = _archive(profile, out)
    if archive is None:
        return {}
    found = archive.outcomes(run for e in experiments if e.archived for run in e.runs(profile))
    needed = {run.name for experiment in experiments if not experiment.archived for run in experiment.runs(profile)}
    return {name: known for name, known in found.items() if name not in needed}


def _archive(profile: Profile, out: Path) -> Archive | None:
    return None if profile.archive is None else Archive(out / profile.archive)


# -- measurements --------------------------------------------------------------------------------------------------


def known(measurement: Measurement, folder: Path) -> Result | None:
    """What was measured before; None where nothing was, or where it failed and deserves another attempt."""
    path = folder / measurement.file
    result = _stored(path)["result"] if path.exists() else None
    return None if result is None or result["status"] == "failed" else result


def _stored(path: Path) -> dict[str, Any]:
    """A measurement that was kept, if it is still what was written."""
    found = file_formats.read_json(path, dict, {"result": dict, "environment": dict})
    expected = found.pop(_SUM, None)
    whole = found.keys() == {"function", "arguments", "result", "environment"} and "status" in found["result"]
    if not whole or expected not in (None, digest(file_formats.json_text(found).encode())):
        raise file_formats.DamagedError(f"{str(path)!r} is damaged; delete it to measure it again.")
    return found


def measured(wanted: Mapping[str, Measurement], folder: Path, stopped: bool) -> dict[str, Result]:
    """The results by file name; some are missing if the work is stopped."""
    results = settled(wanted.values(), folder)
    missing = [measurement for name, measurement in wanted.items() if name not in results]
    if missing and not stopped:
        file_formats.make_folder(folder)
        try:
            with politely_stopped(), Measuring() as server:
                for number, measurement in enumerate(missing, 1):
                    result = _skipped(measurement, results)
                    if result is None:
                        result = server.result(measurement.function, measurement.arguments)
                        _keep(measurement, result, folder)
                    results[measurement.file] = result
                    told = result["status"] + (f": {result['reason']}" if "reason" in result else "")
                    print(f"{number}/{len(missing)}  {measurement.name}  {told}", file=sys.stderr, flush=True)
        except KeyboardInterrupt:
            pass  # what is missing then tells the rest
    return results


def settled(wanted: Iterable[Measurement], folder: Path) -> dict[str, Result]:
    """What need not be measured, by file name: what was, and what that shows to be hopeless."""
    results: dict[str, Result] = {}
    for measurement in wanted:
        result = known(measurement, folder) or _skipped(measurement, results)
        if result is not None:
            results[measurement.file] = result
    return results


def _skipped(measurement: Measurement, results: Mapping[str, Result]) -> Result | None:
    if measurement.after is None or measurement.after.file not in results:
        return None
    reason = measurement.hopeless(results[measurement.after.file])
    return None if reason is None else {"status": "not tried", "reason": reason}


def _keep(measurement: Measurement, result: Result, folder: Path) -> None:
    content: dict[str, Any] = {"function": measurement.function, "arguments": measurement.arguments, "result": result}
    content["environment"] = _here()
    file_formats.write_json(
        folder / measurement.file, {**content, _SUM: digest(file_formats.json_text(content).encode())}
    )


def _here() -> dict[str, Any]:
    return {key: value for key, value in environment(0).items() if key not in ("seed", "threads")}


def _failures(outcomes: Sequence[Outcome], results: Mapping[str, Result]) -> dict[str, str]:
    lost = {o.name: o.reason or "its loss is not finite" for o in outcomes if o.status in ("diverged", "failed")}
    return lost | {name: result["reason"] for name, result in results.items() if result["status"] == "failed"}


# -- data, tables, figures -----------------------------------------------------------------------------------------


def _found(
    experiment: Experiment,
    profile: Profile,
    outcomes: Mapping[str, Outcome],
    results: Mapping[str, Result],
    out: Path,
    in_part: bool,
) -> Found | None:
    """What the work came to; None if it is not complete, or if there is nothing of it where a part will do."""
    mine = [outcomes[run.name] for run in experiment.runs(profile)]
    needed = experiment.measurements(profile)
    stopped = [outcome.status == "interrupted" for outcome in mine]
    if (all if in_part and mine else any)(stopped) or any(m.file not in results for m in needed):
        return None
    return Found(mine, out / "runs", [(measurement, results[measurement.file]) for measurement in needed])


def collect(experiment: Experiment, found: Found, out: Path) -> None:
    """Write the data of an experiment, with the settings of everything they come from."""
    folder = out / "data" / experiment.name
    collected = experiment.collect(found)
    for name, content in collected.items():
        write_data(folder / name, content)
    settings = {outcome.name: outcome.settings.model_dump(exclude_none=True) for outcome in found.outcomes}
    arguments = {m.name: {"function": m.function, **m.arguments} for m, _ in found.measured}
    write_data(folder / CONFIGS, {**settings, **arguments})
    write_data(folder / ENVIRONMENT, _environments(found, out))
    names = (*collected, CONFIGS, ENVIRONMENT)
    write(folder / SUMS, sums({name: (folder / name).read_bytes() for name in names}).encode())


def _environments(found: Found, out: Path) -> dict[str, dict[str, Any]]:
    """Where the numbers come from: each machine and version once, with the number of runs or measurements."""
    of_runs = [_environment(outcome, found.runs / outcome.name) for outcome in found.outcomes]
    every = [values for values in of_runs if values is not None]
    stored = [out / "measurements" / m.file for m, _ in found.measured]
    every += [_stored(path)["environment"] for path in stored if path.exists()]
    counted: dict[str, dict[str, Any]] = {}
    for values in every:
        kept = {key: value for key, value in values.items() if key not in ("seed", "threads")}
        entry = counted.setdefault(json.dumps(kept, sort_keys=True), {**kept, "times": 0})
        entry["times"] += 1
    return {str(number): entry for number, entry in enumerate(counted.values(), 1)}


def _environment(ended: Outcome, folder: Path) -> dict[str, Any] | None:
    """Where a run was made, which some in an archive do not tell; None where there is no run."""
    path = folder / "environment.json"
    if path.exists():
        return file_formats.read_json(path, dict)
    return None if ended.result is None else ended.result.get("environment", {})


def present(experiment: Experiment, folder: Path, out: Path, again: bool = False) -> list[Path]:
    """Make what is missing or older than its data, or all of it again; returns what has changed."""
    data = Data(folder / "data" / experiment.name)
    written = []
    if experiment.tables is not None:
        tables = experiment.tables(data)
        texts = {f"{experiment.name}.md": f"# {experiment.title}\n\n" + "\n".join(t.markdown() for t in tables)}
        texts |= {"-".join([experiment.name, *filter(None, [table.name])]) + ".csv": table.csv() for table in tables}
        written += [
            out / "tables" / name for name, text in texts.items() if write(out / "tables" / name, text.encode())
        ]
    picture = out / "figures" / f"{experiment.name}.png"
    if experiment.figure is not None and (again or _outdated(picture, data)):
        with tempfile.TemporaryDirectory() as temporary:
            drawn = Path(temporary) / picture.name
            experiment.figure(data, drawn)
            if write(picture, drawn.read_bytes()):
                written.append(picture)
            else:
                picture.touch()  # newer than its data again
    return written


def _outdated(path: Path, data: Data) -> bool:
    return not path.exists() or path.stat().st_mtime < max(file.stat().st_mtime for file in data.files)
