from __future__ import annotations

import csv
import io
import json
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from sweeps import control_c_when

import dudx
from dudx.lab import file_formats
from dudx.lab.sweep import local_workers
from dudx.lab.sweep.sweep_run import Outcome, Run, Work, execute
from reproduction import command_line, report, runner
from reproduction.experiment import ExperimentResults, Measurement
from reproduction.experiments import experiments
from reproduction.profile import load
from reproduction.record_table import RecordTable
from reproduction.result_store import ResultStore

EXPERIMENTS = experiments()
SMOKE = load("smoke")
EVERYTHING = list(EXPERIMENTS.values())


@pytest.fixture
def copied(smoke: Path, tmp_path: Path) -> Path:
    return shutil.copytree(smoke, tmp_path / "copy")


def artefacts(folder: Path) -> dict[str, bytes]:
    """The tables and figures."""
    paths = [path for kind in ("tables", "figures") for path in (folder / kind).glob("*")]
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(paths)}


def times(folder: Path) -> dict[str, int]:
    paths = [path for kind in ("runs/*/*", "tables/*", "figures/*", "*.*") for path in folder.glob(kind)]
    return {
        str(path.relative_to(folder)): path.stat().st_mtime_ns
        for path in paths
        if path.is_file() and path.suffix != ".lock"
    }


def changed(before: Mapping[str, int], folder: Path) -> set[str]:
    now = times(folder)
    assert before.keys() <= now.keys()
    return {name for name, at in now.items() if before.get(name) != at}


def read_csv(path: Path) -> list[dict[str, str]]:
    return read_csv_text(path.read_text(encoding="utf-8"))


def read_csv_text(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


class Idle:
    """Stands in for workers and measuring where there is nothing to do."""

    def __init__(self, *arguments: object):
        raise AssertionError("there is nothing to do")


@pytest.fixture
def idle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_workers, "work", Idle)
    monkeypatch.setattr(runner, "MeasurementServer", Idle)


def call(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["dudx", *arguments])
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit) as stop:
        command_line.main()
    return int(stop.value.code or 0)


def results_of(name: str, folder: Path) -> ExperimentResults:
    """The results of an experiment in a folder that has all of them; its figure is not drawn."""
    experiment = replace(EXPERIMENTS[name], figure=None)
    found, _ = runner.draw_from_results([experiment], SMOKE, folder, folder / "again")
    shutil.rmtree(folder / "again", ignore_errors=True)
    return found[name]


# -- from end to end -------------------------------------------------------------------------------------------------


def test_every_experiment_leaves_results_and_what_is_made_of_them(smoke: Path, copied: Path) -> None:
    assert smoke.with_suffix(".said").read_text().count("Written: ") == len(artefacts(smoke))
    store = ResultStore(smoke)
    for name, experiment in EXPERIMENTS.items():
        results = results_of(name, copied)
        runs, measurements = experiment.runs(SMOKE), experiment.measurements(SMOKE)
        assert runs or measurements
        assert all(store.run(run) is not None for run in runs)
        assert all(store.measured(measurement) is not None for measurement in measurements)
        assert sum(machine["count"] for machine in results.machines) == len(runs) + len(measurements)
        assert (smoke / "tables" / f"{name}.md").exists() == (experiment.tables is not None)
        files = {
            "-".join([name, *filter(None, [t.name])]) for t in (experiment.tables(results) if experiment.tables else [])
        }
        assert files == {path.stem for path in (smoke / "tables").glob(f"{name}*.csv")}
        assert (smoke / "figures" / f"{name}.png").exists() == (experiment.figure is not None)
        assert experiment.tables or experiment.figure


def test_a_run_that_several_experiments_need_is_trained_once(smoke: Path) -> None:
    needed = [run for experiment in EVERYTHING for run in experiment.runs(SMOKE)]
    folders = [path.name for path in (smoke / "runs").iterdir() if path.is_dir()]
    assert len(folders) == len({repr(run.settings) for run in needed}) < len(needed)
    assert ResultStore(smoke).table("runs").records.keys() == set(folders)
    shared = {run.name for run in EXPERIMENTS["fig-1"].runs(SMOKE)}
    assert shared < {run.name for run in EXPERIMENTS["table-poisson"].runs(SMOKE)}


def test_every_seed_has_a_line_with_the_numbers_of_its_run(smoke: Path, copied: Path) -> None:
    rows = results_of("table-burgers", copied).runs
    assert [(row["engine"], row["seed"]) for row in rows] == [
        (engine, seed) for engine in ("ad", "fd", "efd", "sfd", "taylor") for seed in (0, 1)
    ]
    stored = {row["name"]: row for row in read_csv(smoke / "runs.csv")}
    for row in rows:
        result = file_formats.read_json(smoke / "runs" / row["name"] / "result.json")
        assert row["l2_relative"] == float(stored[row["name"]]["result/l2_relative"]) == result["l2_relative"]
        assert row["seconds"] == result["seconds"]


def test_tables_have_the_published_numbers_beside_ours(smoke: Path) -> None:
    rows = read_csv(smoke / "tables" / "table-heat.csv")
    text = (smoke / "tables" / "table-heat.csv").read_text()
    assert [row["method"] for row in rows] == ["AD", "FD", "eFD", "sFD", "Taylor (ours)"]
    assert "2.66 ± 0.38" in text.splitlines()[2]
    assert all(row["finished"] == "2 of 2, 2 collapsed" for row in rows)  # in two steps nothing is learned
    assert "equal FD" in (smoke / "tables" / "table-summary.md").read_text()


def test_the_scaling_of_the_best_step_is_the_published_one(smoke: Path) -> None:
    with (smoke / "tables" / "table-1.csv").open(encoding="utf-8") as file:
        _, *rows = csv.reader(file)
    assert [row[0] for row in rows] == ["FP64", "FP32", "FP16", "BF16"]
    for row in rows:
        assert (row[2], row[4], row[8]) == (row[3], row[5], row[9])  # each beside what is published
        assert 0.3 < float(row[7]) < 10  # C₁


def test_only_isolation_has_each_sample_own_derivative(smoke: Path) -> None:
    records = ResultStore(smoke).table("laplacian_error").records.values()
    assert len(records) == 3 * 2
    for record in records:
        for dtype, rounding in (("float32", 1e-5), ("float64", 1e-13)):
            found = record["result"][dtype]
            assert found["isolated_ad"] < rounding
            assert found["isolated_taylor"] < rounding
            assert (found["batched_ad"] > 0.01 * found["scale"]) == (record["arguments"]["network"] != "mlp")


def test_the_cost_of_every_variant_is_measured(smoke: Path) -> None:
    rows = read_csv(smoke / "step_cost.csv")
    assert {row["result/status"] for row in rows} == {"ok"}
    key = [f"arguments/{name}" for name in ("network", "variant", "batch")]
    assert {(row[key[0]], row[key[1]]) for row in rows} >= {("mlp", "per-sample AD"), ("attention", "isolated Taylor")}
    at = {tuple(row[name] for name in key): float(row["result/seconds"]) for row in rows}
    assert at["mlp", "per-sample AD", "16"] > 2 * at["mlp", "FD", "16"]


def test_the_report_has_every_table_figure_and_claim(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert call(monkeypatch, "--from-data", "--profile", "smoke", "--out", str(copied)) == 0
    text = (copied / "report.md").read_text()
    assert "Missing" not in text
    for name, experiment in EXPERIMENTS.items():
        assert f"### {name} (smoke): {experiment.title}" in text
        for claim in experiment.claims(results_of(name, copied)):
            assert claim.text in text
    pictures = sum(experiment.figure is not None for experiment in EVERYTHING)
    assert pictures == text.count("](figures/")
    assert f"| table-poisson | smoke | {dudx.__version__} | {torch.__version__} |" in text


# -- what is there is left alone ---------------------------------------------------------------------------------------


def test_result_tables_alone_make_the_same_tables_and_figures(smoke: Path, tmp_path: Path, idle: None) -> None:
    kept = shutil.copytree(smoke, tmp_path / "kept", ignore=shutil.ignore_patterns("runs", "tables", "figures"))
    runner.draw_from_results(EVERYTHING, SMOKE, kept, tmp_path / "new")
    assert artefacts(tmp_path / "new") == artefacts(smoke)


def test_a_second_time_nothing_is_done(copied: Path, idle: None) -> None:
    shutil.rmtree(copied / "runs")  # what is in the tables is not run again
    before = times(copied)
    done = runner.reproduce(EVERYTHING, SMOKE, copied)
    assert (done.written, done.failed, done.incomplete) == ([], {}, [])
    assert changed(before, copied) == set()


def test_only_what_is_missing_is_made_again(copied: Path, idle: None) -> None:
    before, made, tables = times(copied), artefacts(copied), (copied / "runs.csv").read_bytes()
    missing = ["tables/table-poisson.md", "figures/fig-2.png"]
    some = [EXPERIMENTS[name] for name in ("fig-1", "fig-2", "table-poisson", "table-burgers")]
    for name in (*missing, "runs.csv", "runs.npz", "SHA256SUMS"):  # the runs are collected from their folders
        (copied / name).unlink()
    done = runner.reproduce(some, SMOKE, copied)
    assert sorted(done.written) == [copied / "figures/fig-2.png", copied / "tables/table-poisson.md"]
    again = {name for name in changed(before, copied) if name.startswith(("runs/", "tables", "figures"))}
    figures = {f"figures/{e.name}.png" for e in some if e.figure is not None}  # as the results are new
    assert again == {*missing, *figures}
    assert artefacts(copied) == made
    kept = {row["name"]: row for row in read_csv_text(tables.decode())}
    redone = read_csv(copied / "runs.csv")
    assert {row["name"] for row in redone} == {run.name for e in some for run in e.runs(SMOKE)}
    assert all(row == kept[row["name"]] for row in redone)


def test_only_a_missing_run_and_a_missing_measurement_are_done_again(
    copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []

    def work(runs: Sequence[Run], folder: Path, *others: object) -> Work:
        for run in runs:
            done.append(run.name)
            execute(run, folder / run.name)
            yield run, None

    class Measured(Idle):
        def __init__(self) -> None:
            pass

        def __enter__(self) -> Measured:
            return self

        def __exit__(self, *error: object) -> None:
            pass

        def result(self, function: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
            done.append(function)
            return {"status": "ok", "seconds": 0.5, "median": 0.5, "steps": 1, "megabytes": 7.0}

    monkeypatch.setattr(local_workers, "work", work)
    monkeypatch.setattr(runner, "MeasurementServer", Measured)
    run = EXPERIMENTS["fig-1"].runs(SMOKE)[0].name
    measurement = next(m for m in EXPERIMENTS["fig-4"].measurements(SMOKE) if m.name == "cost-mlp-fd-8")
    before, errors = times(copied), file_formats.read_json(copied / "runs" / run / "result.json")["l2_relative"]
    shutil.rmtree(copied / "runs" / run)
    forget(copied, "runs", run)
    forget(copied, "step_cost", measurement.key)
    runner.reproduce([EXPERIMENTS[name] for name in ("fig-1", "fig-4", "table-poisson")], SMOKE, copied)
    assert done == [run, measurement.function]
    assert file_formats.read_json(copied / "runs" / run / "result.json")["l2_relative"] == errors
    redone = {name for name in changed(before, copied) if name.startswith("runs/")}
    assert {name.split("/")[1] for name in redone} == {run}
    found = ResultStore(copied).measured(measurement)
    assert found == {"status": "ok", "seconds": 0.5, "median": 0.5, "steps": 1, "megabytes": 7.0}


def forget(folder: Path, table: str, name: str) -> None:
    """Take a record out of a result table."""
    records = dict(RecordTable(folder, table).records)
    del records[name]
    fresh = RecordTable(folder, table)
    fresh.records = {}
    fresh.update(records)


# -- what goes wrong is shown, and what is stopped goes on -----------------------------------------------------------


def outcomes(runs: Sequence[Run], statuses: Sequence[str]) -> list[Outcome]:
    result = {"l2_relative": 0.5, "smape": 50.0, "max_error": 1.0, "seconds": 1.0, "epochs": 6}
    ends: dict[str, Any] = {"finished": ("finished", result, None), "failed": ("failed", None, "bang")}
    return [Outcome(run.name, run.settings, *ends[status]) for run, status in zip(runs, statuses, strict=True)]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "table-poisson",
            "| AD | 50.00 | 13.67 ± 0.55 | 50.00 | 50.00 | 1.41 ± 0.31 | 1.000 | 0.032 ± 0.008 | 1 of 2, 1 failed |",
        ),
        ("table-summary", "50.00 (1 not finished)"),
        ("fig-5", "50.00 (1 not finished)"),
        ("coupled-training", "1 of 2, 1 failed"),
        ("fig-1", None),
    ],
)
def test_runs_that_fail_are_counted(name: str, words: str | None, tmp_path: Path) -> None:
    experiment = EXPERIMENTS[name]
    runs = experiment.runs(SMOKE)
    statuses = ["failed" if run.settings.seed == 0 else "finished" for run in runs]
    ended = {outcome.name: outcome for outcome in outcomes(runs, statuses)}
    results = runner.results_of(experiment, SMOKE, ResultStore(tmp_path), ended, {})
    runner.draw(experiment, results, tmp_path)
    if words is not None:
        assert words in (tmp_path / "tables" / f"{name}.md").read_text()
        assert "bang" in [row["reason"] for row in results.runs]
    if experiment.figure is not None:
        assert (tmp_path / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", [e.name for e in EVERYTHING])
def test_everything_may_fail_and_is_still_shown(name: str, tmp_path: Path) -> None:
    experiment = EXPERIMENTS[name]
    runs = experiment.runs(SMOKE)
    ended = {outcome.name: outcome for outcome in outcomes(runs, ["failed"] * len(runs))}
    measured = {m.key: {"status": "failed", "reason": "bang"} for m in experiment.measurements(SMOKE)}
    results = runner.results_of(experiment, SMOKE, ResultStore(tmp_path), ended, measured)
    assert runner.draw(experiment, results, tmp_path)
    assert {claim.verdict for claim in experiment.claims(results)} <= {"undecided"}


class Scripted:
    """A measuring server that answers as it is told, and may be interrupted."""

    answers: ClassVar[Mapping[int, Any]] = {}
    asked: ClassVar[list[int]] = []

    def __enter__(self) -> Scripted:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def result(self, function: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        self.asked.append(arguments["batch"])
        answer = self.answers[arguments["batch"]]
        if answer is KeyboardInterrupt:
            raise KeyboardInterrupt
        return answer


def ladder(batches: Sequence[int]) -> dict[str, Measurement]:
    before: Measurement | None = None
    found = {}
    for batch in batches:
        before = Measurement(
            f"m{batch}", "some.ladder:f", {"batch": batch}, before, lambda r: None if r["status"] == "ok" else "no"
        )
        found[before.key] = before
    return found


def test_larger_batches_are_not_tried_where_a_smaller_one_is_too_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "MeasurementServer", Scripted)
    monkeypatch.setattr(Scripted, "asked", [])
    monkeypatch.setattr(Scripted, "answers", {1: {"status": "ok"}, 2: {"status": "memory", "reason": "much"}})
    wanted = ladder([1, 2, 4, 8])
    found = runner.measure_missing(wanted, ResultStore(tmp_path))
    assert [found[name]["status"] for name in wanted] == ["ok", "memory", "not tried", "not tried"]
    assert Scripted.asked == [1, 2]
    assert len(RecordTable(tmp_path, "ladder").records) == 2


def test_a_measurement_that_failed_is_tried_again_and_an_interrupted_one_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "MeasurementServer", Scripted)
    monkeypatch.setattr(Scripted, "asked", [])
    wanted = {m.key: m for m in (Measurement(f"m{batch}", "some.ladder:f", {"batch": batch}) for batch in (1, 2, 3))}
    bad = {"status": "failed", "reason": "bang"}
    monkeypatch.setattr(Scripted, "answers", {1: {"status": "ok"}, 2: bad, 3: KeyboardInterrupt})
    found = runner.measure_missing(wanted, ResultStore(tmp_path))
    assert [found.get(name, {}).get("status") for name in wanted] == ["ok", "failed", None]
    monkeypatch.setattr(Scripted, "answers", {batch: {"status": "ok"} for batch in (2, 3)})
    found = runner.measure_missing(wanted, ResultStore(tmp_path))
    assert [result["status"] for result in found.values()] == ["ok"] * 3
    assert Scripted.asked == [1, 2, 3, 2, 3]


@pytest.mark.slow
def test_control_c_leaves_everything_to_go_on_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    command = ["table-poisson", "--profile", "smoke", "--workers", "1", "--out", str(tmp_path)]
    with control_c_when(lambda: any(tmp_path.glob("runs/*/result.json"))):
        assert call(monkeypatch, *command) == 130
    said = capsys.readouterr()
    assert "stopped before table-poisson was complete; the same command goes on" in said.err
    # The run that was under way says so in a result of its own, and goes on.
    finished = {
        path: path.stat().st_mtime_ns
        for path in tmp_path.glob("runs/*/result.json")
        if json.loads(path.read_text())["status"] == "finished"
    }
    assert 0 < len(finished) < 8
    assert not (tmp_path / "tables").exists()
    assert call(monkeypatch, *command) == 0
    assert {path: path.stat().st_mtime_ns for path in finished} == finished
    assert (tmp_path / "tables" / "table-poisson.md").exists()


def test_two_at_a_time_in_one_folder_are_refused(tmp_path: Path) -> None:
    from dudx.lab.locks import LockedError, locked

    with locked(tmp_path / "reproduce.lock"), pytest.raises(LockedError):
        runner.reproduce(EVERYTHING, SMOKE, tmp_path)


ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], ExperimentResults]:
    """The results that come with the repository, by profile and experiment; figures are not drawn."""
    without = [replace(experiment, figure=None) for experiment in EVERYTHING]
    return command_line.draw_profiles(without, ROOT / "results", tmp_path_factory.mktemp("drawn"))


def test_the_published_report_is_what_the_results_say(published: dict[tuple[str, str], ExperimentResults]) -> None:
    assert command_line.page(published) == (ROOT / "docs" / "report.md").read_text(encoding="utf-8")


def test_every_experiment_is_published(published: dict[tuple[str, str], ExperimentResults]) -> None:
    assert {name for _, name in published} == set(EXPERIMENTS)
    assert {name for _, _, wanted in report.PARTS for _, name in wanted} == set(EXPERIMENTS)


def test_results_are_few_files() -> None:
    """A table for each kind of result, and nothing that is drawn from them."""
    listed = subprocess.run(["git", "ls-files", "results"], cwd=ROOT, capture_output=True, text=True, check=False)
    # A source distribution, which is no repository, has what is tracked and nothing else.
    files = [ROOT / name for name in listed.stdout.splitlines()] or [*(ROOT / "results").rglob("*.*")]
    assert 50 < len(files) < 100
    assert sum(path.stat().st_size for path in files if path.exists()) < 8e6
