"""Runs that ended, as small files that a reproduction and a benchmark share."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from dudx.errors import InputError
from dudx.lab import file_formats, make_settings, train
from dudx.lab.run.settings import Settings
from dudx.lab.sweep.sweep_run import outcome
from reproduction import runner
from reproduction.archive import Archive, write
from reproduction.experiments import experiments
from reproduction.experiments.base import named
from reproduction.experiments.profile import load
from reproduction.report import write_report

ROOT = Path(__file__).parents[2]
TABLE = experiments()["table-poisson"]


def settings(**options: object) -> Settings:
    return make_settings("poisson", "smoke", engine="taylor", **{"epochs": 4, "evaluate_every": 2, **options})


def test_a_run_is_known_by_its_settings_and_comes_back_whole(tmp_path: Path) -> None:
    run = named(settings(seconds=1000.0))
    result = train(run.settings, tmp_path / "run")
    archive = Archive(tmp_path / "kept")
    archive.keep(outcome(run, tmp_path / "run"), tmp_path / "run")
    shutil.rmtree(tmp_path / "run")
    for known in (archive, Archive(tmp_path / "kept")):  # the same in hand and from the disk
        found = known.outcomes([run, named(settings(seconds=1000.0, seed=1))])
        assert list(found) == [run.name]
        kept = found[run.name].result
        assert kept is not None
        assert kept["l2_relative"] == result["l2_relative"]
        assert [look[1] for look in kept["curve"]] == [2, 4]
        assert kept["curve"][-1][2] == result["l2_relative"]
        assert kept["environment"]["torch"]


def test_a_file_of_options_alone_is_of_the_problem_and_profile_in_its_name(tmp_path: Path) -> None:
    """As the first of them are: of a budget of seconds, with Levenberg and Marquardt's method."""
    options = {"engine": "ad", "seed": 3, "seconds": 60.0, "epochs": 1000}
    content = {"settings": options, "status": "finished", "curve": [[1.0, 5, 0.5]]}
    file_formats.write_json(tmp_path / "burgers-lm-ad-seed3.json", content)
    assert Archive(tmp_path).path(make_settings("burgers", "cpu", **options)) is not None
    assert Archive(tmp_path).path(make_settings("burgers", "cpu", **{**options, "seconds": 61.0})) is None


def test_a_run_that_was_stopped_is_not_kept_and_one_that_claims_it_is_refused(tmp_path: Path) -> None:
    run = named(settings())
    Archive(tmp_path / "kept").keep(outcome(run, tmp_path / "none"), tmp_path / "none")
    assert not (tmp_path / "kept").exists()
    write(tmp_path / "kept" / "poisson-seed0.json", run.settings, {"status": "interrupted"}, tmp_path)
    with pytest.raises(InputError, match="delete it to run it again"):
        Archive(tmp_path / "kept").outcomes([run])


def test_the_published_runs_are_those_of_the_reproduction() -> None:
    """So that none is made twice: what the benchmark asks for with every engine is what the profile asks for."""
    cpu, archive = load("cpu"), Archive(ROOT / "results" / "accuracy")
    asked = experiments()["table-summary"].runs(cpu)
    files = [path.name for path in (ROOT / "results" / "accuracy").glob("*-lm-*-seed*.json")]
    plain = [name for name in files if "precise" not in name and not name.startswith("poisson-lm-efd")]
    assert len(plain) > 10
    assert sum(archive.path(run.settings) is not None for run in asked) == len(plain)


def test_what_is_there_is_shown_and_the_rest_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "run_sweep", lambda *arguments: pytest.fail("nothing is to be run"))
    smoke = load("smoke")
    done = runner.reproduce([TABLE], smoke, tmp_path / "none", shown=True)
    assert done.incomplete == ["table-poisson"]
    assert not (tmp_path / "none" / "data").exists()
    there = [run for run in TABLE.runs(smoke) if (run.settings.engine, run.settings.seed) != ("sfd", 1)]
    for run in there:
        looks = [[None, 6, 0.25]]
        content = {"settings": run.settings.model_dump(exclude_none=True), "status": "finished", "l2_relative": 0.25}
        file_formats.make_folder(tmp_path / "archive")
        file_formats.write_json(tmp_path / "archive" / f"{run.name}.json", {**content, "epochs": 6, "curve": looks})
    done = runner.reproduce([TABLE], smoke, tmp_path, shown=True)
    assert not done.incomplete
    text = (tmp_path / "tables" / "table-poisson.md").read_text(encoding="utf-8")
    assert "| sFD | 25.00 | 25.00 | 1.11 ± 0.39 | 1 of 2, 1 missing |" in text
    assert "Missing runs: seed 1 of sFD." in text
    write_report(tmp_path)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert page.count("Runs still missing: 1.") == 1
    assert json.loads((tmp_path / "data" / "table-poisson" / "environment.json").read_text())["1"] == {"times": 7}
