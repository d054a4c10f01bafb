from __future__ import annotations

import csv
import json
import shutil
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
from reproduction import program, runner
from reproduction.experiments import experiments
from reproduction.experiments.base import Found, Measurement
from reproduction.experiments.data import Data
from reproduction.experiments.profile import load
from reproduction.report import write_report

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
    kinds = ("runs/*", "measurements", "data/*", "tables", "figures")
    paths = [path for kind in kinds for path in folder.glob(f"{kind}/*")]
    return {str(path.relative_to(folder)): path.stat().st_mtime_ns for path in paths}


def changed(before: Mapping[str, int], folder: Path) -> set[str]:
    now = times(folder)
    assert before.keys() <= now.keys()
    return {name for name, at in now.items() if before.get(name) != at}


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


class Idle:
    """Stands in for workers and measuring where there is nothing to do."""

    def __init__(self, *arguments: object):
        raise AssertionError("there is nothing to do")


@pytest.fixture
def idle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_workers, "work", Idle)
    monkeypatch.setattr(runner, "Measuring", Idle)


def call(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["dudx", *arguments])
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit) as stop:
        program.main()
    return int(stop.value.code or 0)


# -- from end to end -------------------------------------------------------------------------------------------------


def test_every_experiment_leaves_data_and_what_is_made_of_them(smoke: Path) -> None:
    assert smoke.with_suffix(".said").read_text().count("Written: ") == len(artefacts(smoke))
    for name, experiment in EXPERIMENTS.items():
        data = Data(smoke / "data" / name)
        work = {run.name for run in experiment.runs(SMOKE)} | {m.name for m in experiment.measurements(SMOKE)}
        assert work
        assert data.configs().keys() == work
        assert sum(entry["times"] for entry in data.environments()) == len(work)
        assert (smoke / "tables" / f"{name}.md").exists() == (experiment.tables is not None)
        files = {
            "-".join([name, *filter(None, [t.name])]) for t in (experiment.tables(data) if experiment.tables else [])
        }
        assert files == {path.stem for path in (smoke / "tables").glob(f"{name}*.csv")}
        assert (smoke / "figures" / f"{name}.png").exists() == (experiment.figure is not None)
        assert experiment.tables or experiment.figure


def test_a_run_that_several_experiments_need_is_trained_once(smoke: Path) -> None:
    needed = [run for experiment in EVERYTHING for run in experiment.runs(SMOKE)]
    folders = [path.name for path in (smoke / "runs").iterdir() if path.is_dir()]
    assert len(folders) == len({repr(run.settings) for run in needed}) < len(needed)
    shared = {run.name for run in EXPERIMENTS["fig-1"].runs(SMOKE)}
    assert shared < {run.name for run in EXPERIMENTS["table-poisson"].runs(SMOKE)}


def test_every_seed_has_a_line_with_the_numbers_of_its_run(smoke: Path) -> None:
    rows = read_csv(smoke / "data" / "table-burgers" / "runs.csv")
    assert [(row["engine"], row["seed"]) for row in rows] == [
        (engine, seed) for engine in ("ad", "fd", "efd", "sfd", "taylor") for seed in "01"
    ]
    for row in rows:
        result = file_formats.read_json(smoke / "runs" / row["name"] / "result.json")
        assert float(row["l2_relative"]) == result["l2_relative"]
        assert float(row["seconds"]) == result["seconds"]
    steps = read_csv(smoke / "data" / "table-burgers" / "steps.csv")
    assert {(row["epoch"], row["order"]) for row in steps} == {(epoch, order) for epoch in "03" for order in "12"}


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
    rows = read_csv(smoke / "data" / "appendix-b" / "discrepancy.csv")
    assert len(rows) == 3 * 2 * 2
    for row in rows:
        rounding = 1e-5 if row["dtype"] == "float32" else 1e-13
        assert float(row["isolated_ad"]) < rounding
        assert float(row["isolated_taylor"]) < rounding
        assert (float(row["batched_ad"]) > 0.01 * float(row["scale"])) == (row["network"] != "mlp")


def test_the_cost_of_every_way_is_measured(smoke: Path) -> None:
    rows = read_csv(smoke / "data" / "fig-4" / "cost.csv")
    assert {row["status"] for row in rows} == {"ok"}
    assert {(row["network"], row["way"]) for row in rows} >= {
        ("mlp", "per-sample AD"),
        ("attention", "isolated Taylor"),
    }
    at = {(row["network"], row["way"], row["batch"]): float(row["seconds"]) for row in rows}
    assert at["mlp", "per-sample AD", "16"] > 2 * at["mlp", "FD", "16"]


def test_the_report_has_every_table_figure_and_claim(smoke: Path) -> None:
    write_report(smoke)
    text, page = ((smoke / name).read_text() for name in ("report.md", "report.html"))
    assert "Missing" not in text
    for name, experiment in EXPERIMENTS.items():
        assert f"## {name}: {experiment.title}" in text
        for claim in experiment.claims(Data(smoke / "data" / name)):
            assert claim.text in text
    pictures = sum(experiment.figure is not None for experiment in EVERYTHING)
    assert page.count("data:image/png;base64,") == pictures == text.count("](figures/")
    assert f"| table-poisson | smoke | {dudx.__version__} | {torch.__version__} |" in text


# -- what is there is left alone ---------------------------------------------------------------------------------------


def test_data_alone_make_the_same_tables_and_figures(smoke: Path, tmp_path: Path, idle: None) -> None:
    shutil.copytree(smoke / "data", tmp_path / "kept" / "data")
    runner.from_data(runner.with_data(tmp_path / "kept"), tmp_path / "kept", tmp_path / "new")
    assert artefacts(tmp_path / "new") == artefacts(smoke)


def test_a_second_time_nothing_is_done(copied: Path, idle: None) -> None:
    before = times(copied)
    done = runner.reproduce(EVERYTHING, SMOKE, copied)
    assert (done.written, done.failed, done.incomplete) == ([], {}, [])
    assert changed(before, copied) == set()


def test_only_what_is_missing_is_made_again(copied: Path, idle: None) -> None:
    before, made = times(copied), artefacts(copied)
    missing = ["tables/table-poisson.md", "figures/fig-2.png", "data/table-heat/runs.csv", "data/fig-1/solution.npz"]
    for name in missing:
        (copied / name).unlink()
    done = runner.reproduce(EVERYTHING, SMOKE, copied)
    assert sorted(done.written) == [copied / "figures/fig-2.png", copied / "tables/table-poisson.md"]
    redrawn = {"figures/fig-1.png", "figures/table-heat.png"}  # as their data are new
    assert changed(before, copied) == {*missing, *redrawn}
    assert artefacts(copied) == made


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
    monkeypatch.setattr(runner, "Measuring", Measured)
    run = EXPERIMENTS["fig-1"].runs(SMOKE)[0].name
    measurement = next(m for m in EXPERIMENTS["fig-4"].measurements(SMOKE) if m.name == "cost-mlp-fd-8")
    before, errors = times(copied), file_formats.read_json(copied / "runs" / run / "result.json")["l2_relative"]
    shutil.rmtree(copied / "runs" / run)
    (copied / "measurements" / measurement.file).unlink()
    runner.reproduce(EVERYTHING, SMOKE, copied)
    assert done == [run, measurement.function]
    assert file_formats.read_json(copied / "runs" / run / "result.json")["l2_relative"] == errors
    redone = {name for name in changed(before, copied) if name.startswith(("runs", "measurements"))}
    assert {name.split("/")[1] for name in redone} == {run, measurement.file}
    assert "mlp,FD,8,ok,0.5,0.5,1,7.0," in (copied / "data/fig-4/cost.csv").read_text()


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
    runner.collect(experiment, Found(outcomes(runs, statuses), tmp_path / "runs"), tmp_path)
    runner.present(experiment, tmp_path, tmp_path)
    if words is not None:
        assert words in (tmp_path / "tables" / f"{name}.md").read_text()
        assert ",bang" in (tmp_path / "data" / name / "runs.csv").read_text()
    if experiment.figure is not None:
        assert (tmp_path / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", [e.name for e in EVERYTHING])
def test_everything_may_fail_and_is_still_shown(name: str, tmp_path: Path) -> None:
    experiment = EXPERIMENTS[name]
    runs = experiment.runs(SMOKE)
    measured = [(m, {"status": "failed", "reason": "bang"}) for m in experiment.measurements(SMOKE)]
    found = Found(outcomes(runs, ["failed"] * len(runs)), tmp_path / "runs", measured)
    runner.collect(experiment, found, tmp_path)
    assert runner.present(experiment, tmp_path, tmp_path)
    assert {claim.verdict for claim in experiment.claims(Data(tmp_path / "data" / name))} <= {"undecided"}


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
            f"m{batch}", "f", {"batch": batch}, before, lambda r: None if r["status"] == "ok" else "no"
        )
        found[before.file] = before
    return found


def test_larger_batches_are_not_tried_where_a_smaller_one_is_too_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "Measuring", Scripted)
    monkeypatch.setattr(Scripted, "asked", [])
    monkeypatch.setattr(Scripted, "answers", {1: {"status": "ok"}, 2: {"status": "memory", "reason": "much"}})
    wanted = ladder([1, 2, 4, 8])
    found = runner.measured(wanted, tmp_path, stopped=False)
    assert [found[name]["status"] for name in wanted] == ["ok", "memory", "not tried", "not tried"]
    assert Scripted.asked == [1, 2]
    assert len(list(tmp_path.iterdir())) == 2


def test_a_measurement_that_failed_is_tried_again_and_an_interrupted_one_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "Measuring", Scripted)
    monkeypatch.setattr(Scripted, "asked", [])
    wanted = {m.file: m for m in (Measurement(f"m{batch}", "f", {"batch": batch}) for batch in (1, 2, 3))}
    bad = {"status": "failed", "reason": "bang"}
    monkeypatch.setattr(Scripted, "answers", {1: {"status": "ok"}, 2: bad, 3: KeyboardInterrupt})
    found = runner.measured(wanted, tmp_path, stopped=False)
    assert [found.get(name, {}).get("status") for name in wanted] == ["ok", "failed", None]
    monkeypatch.setattr(Scripted, "answers", {batch: {"status": "ok"} for batch in (2, 3)})
    found = runner.measured(wanted, tmp_path, stopped=False)
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


RESULTS = Path(__file__).parents[2] / "results"
PUBLISHED = sorted((path.parents[1], path.name) for path in RESULTS.glob("*/data/*") if any(path.iterdir()))


@pytest.mark.parametrize(("published", "name"), PUBLISHED, ids=[f"{path.name}-{name}" for path, name in PUBLISHED])
def test_the_published_tables_are_what_their_data_say(published: Path, name: str, tmp_path: Path) -> None:
    runner.present(replace(EXPERIMENTS[name], figure=None), published, tmp_path)
    for path in (tmp_path / "tables").glob("*"):
        assert path.read_bytes() == (published / "tables" / path.name).read_bytes()
    assert (EXPERIMENTS[name].figure is not None) == (published / "figures" / f"{name}.png").exists()


def test_every_experiment_is_published() -> None:
    assert {name for _, name in PUBLISHED} == set(EXPERIMENTS)
