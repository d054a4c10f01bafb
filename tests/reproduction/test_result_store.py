"""Result tables: runs and measurements come back as they were written, and damaged tables are refused."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from dudx.errors import InputError
from dudx.lab import file_formats, make_settings, train
from dudx.lab.run.settings import Settings
from dudx.lab.sweep.sweep_run import Outcome, outcome
from reproduction import report, runner
from reproduction.experiment import Measurement, named
from reproduction.experiments import experiments
from reproduction.profile import load
from reproduction.record_table import RecordTable
from reproduction.result_store import ResultStore

ROOT = Path(__file__).parents[2]
TABLE = experiments()["table-poisson"]


def settings(**options: object) -> Settings:
    return make_settings("poisson", "smoke", engine="taylor", **{"epochs": 4, "evaluate_every": 2, **options})


def test_a_run_is_known_by_its_settings_and_comes_back_whole(tmp_path: Path) -> None:
    run = named(settings(seconds=1000.0))
    result = train(run.settings, tmp_path / "run")
    store = ResultStore(tmp_path / "kept")
    assert store.add_runs([(outcome(run, tmp_path / "run"), tmp_path / "run")], [run.name]) == 1
    shutil.rmtree(tmp_path / "run")
    for known in (store, ResultStore(tmp_path / "kept")):  # the same in hand and from the disk
        assert known.run(named(settings(seconds=1000.0, seed=1))) is None
        found = known.run(run, with_prediction=True)
        assert found is not None
        kept = found.result
        assert kept is not None
        assert found.status == "finished"
        assert kept["l2_relative"] == result["l2_relative"]
        assert [evaluation[1] for evaluation in kept["curve"]] == [2, 4]
        assert kept["curve"][-1][2] == result["l2_relative"]
        assert known.machines[kept["machine"]]["torch"]
        assert kept["prediction"]["points"].shape == (len(kept["prediction"]["reference"]), 2)
        record = known.table("runs").records[run.name]
        assert named(Settings(**record["settings"])) == run


def test_a_run_without_its_prediction_is_not_known_where_that_is_needed(tmp_path: Path) -> None:
    run = named(settings())
    train(run.settings, tmp_path / "run")
    store = ResultStore(tmp_path / "kept")
    store.add_runs([(outcome(run, tmp_path / "run"), tmp_path / "run")])
    assert store.run(run) is not None
    assert store.run(run, with_prediction=True) is None
    assert store.add_runs([(outcome(run, tmp_path / "run"), tmp_path / "run")], [run.name]) == 1
    assert store.run(run, with_prediction=True) is not None


def test_finished_runs_of_a_folder_are_imported_once(tmp_path: Path) -> None:
    runs = [named(settings(seed=seed)) for seed in range(3)]
    for run in runs[:2]:
        train(run.settings, tmp_path / "runs" / run.name)
    stopped = tmp_path / "runs" / runs[1].name / "result.json"
    (stopped.parent / "SHA256SUMS").unlink(missing_ok=True)
    file_formats.write_json(stopped, {**file_formats.read_json(stopped, dict), "status": "interrupted"})
    (tmp_path / "runs" / runs[2].name).mkdir()  # not begun
    store = ResultStore(tmp_path / "kept")
    assert store.import_runs(tmp_path / "runs") == 1
    assert store.table("runs").records.keys() == {runs[0].name}
    before = (tmp_path / "kept" / "runs.csv").read_bytes()
    train(runs[2].settings, tmp_path / "runs" / runs[2].name)
    assert ResultStore(tmp_path / "kept").import_runs(tmp_path / "runs") == 1
    again = ResultStore(tmp_path / "kept")
    assert again.table("runs").records.keys() == {runs[0].name, runs[2].name}
    assert set(before.splitlines()) < set((tmp_path / "kept" / "runs.csv").read_bytes().splitlines())
    assert again.import_runs(tmp_path / "runs") == 0


def test_a_run_that_was_stopped_or_failed_is_not_kept(tmp_path: Path) -> None:
    run, store = named(settings()), ResultStore(tmp_path / "kept")
    failed = Outcome(run.name, run.settings, "failed", None, "bang")
    assert store.add_runs([(outcome(run, tmp_path / "none"), tmp_path / "none"), (failed, tmp_path)]) == 0
    assert not (tmp_path / "kept").exists()


def test_records_come_back_as_they_were_written(tmp_path: Path) -> None:
    arguments = {"seconds": 0.6, "batch": 8, "compiled": True, "format": "fp32"}
    result = {"status": "ok", "seconds": 1e-3, "1": {"step": 0.25, "steps": [1.0, 2.0]}, "reason": None}
    measurement = Measurement("one", "some.module:measure", arguments)
    store = ResultStore(tmp_path)
    store.add_measurement(measurement, result)
    store.add_measurement(
        Measurement("two", "some.module:measure", {"batch": 1}), {"status": "failed", "reason": "x,y"}
    )
    again = ResultStore(tmp_path)
    record = again.table("module").records[measurement.key]
    assert record["arguments"] == arguments
    steps = record["result"]["1"].pop("steps")
    np.testing.assert_array_equal(steps, [1.0, 2.0])
    assert record["result"] == {"status": "ok", "seconds": 1e-3, "1": {"step": 0.25}}
    assert again.measured(Measurement("two", "some.module:measure", {"batch": 1})) is None  # tried again
    assert again.measured(Measurement("one", "some.module:measure", {**arguments, "batch": 9})) is None
    before = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    again.add_measurement(measurement, result)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda text: text.replace("0.25", "0.35"), "its checksum is not"),
        (lambda text: text[: len(text) // 2], "its checksum is not"),
    ],
)
def test_a_table_that_was_changed_is_refused(damage: Callable[[str], str], sentence: str, tmp_path: Path) -> None:
    RecordTable(tmp_path, "runs").update({"a": {"result": {"l2_relative": 0.25, "curve": [[1.0, 2.0, 3.0]]}}})
    path = tmp_path / "runs.csv"
    path.write_text(damage(path.read_text()))
    with pytest.raises(InputError, match=sentence):
        _ = RecordTable(tmp_path, "runs").records


def test_the_benchmarks_runs_are_those_of_the_reproduction() -> None:
    """Runs of `time_to_accuracy.py` with every engine are runs of the profile, so none is made twice."""
    cpu, store = load("cpu"), ResultStore(ROOT / "results" / "cpu")
    planned = {run.name for run in experiments()["table-summary"].runs(cpu)}
    known = [Settings(**record["settings"]) for record in store.table("runs").records.values()]
    timed = [each for each in known if each.optimizer == "lm" and each.seconds in (60.0, 120.0) and each.seed < 5]
    plain = [named(each).name for each in timed if each.network != "batchnorm" and each.coupled == "isolate"]
    plain = [name for name in plain if not name.startswith("poisson-efd")]
    assert sum(name in planned for name in plain) > 60


def test_existing_runs_are_drawn_and_missing_ones_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "run_sweep", lambda *arguments: pytest.fail("nothing is to be run"))
    smoke = load("smoke")
    done = runner.reproduce([TABLE], smoke, tmp_path / "none", collect=True)
    assert done.incomplete == ["table-poisson"]
    assert not list((tmp_path / "none").glob("*/"))
    there = [run for run in TABLE.runs(smoke) if (run.settings.engine, run.settings.seed) != ("sfd", 1)]
    result = {"status": "finished", "l2_relative": 0.25, "epochs": 6, "curve": [[float("nan"), 6, 0.25]]}
    ended = [(Outcome(run.name, run.settings, "finished", result), tmp_path) for run in there]
    assert ResultStore(tmp_path).add_runs(ended) == 7
    done = runner.reproduce([TABLE], smoke, tmp_path, collect=True)
    assert not done.incomplete
    text = (tmp_path / "tables" / "table-poisson.md").read_text(encoding="utf-8")
    assert "| sFD | 25.00 | 25.00 | 1.11 ± 0.39 | 1 of 2, 1 missing |" in text
    assert "Missing runs: seed 1 of sFD." in text
    found, _ = runner.draw_from_results([TABLE], smoke, tmp_path, tmp_path)
    page = report.markdown(report.report_of_profile("smoke", found), lambda source: "")
    assert page.count("(runs still missing: 1)") == 1
    assert found["table-poisson"].machines == [{"count": 7}]
