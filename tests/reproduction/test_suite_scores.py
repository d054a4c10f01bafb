"""Scores at the nodes of the benchmark suite, against its own data files."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from dudx.errors import InputError, percent
from dudx.lab import file_formats, make_settings, train
from dudx.lab.run.metrics import scores
from dudx.lab.run.records import PREDICTION
from reproduction import command_line
from reproduction.analysis.suite_table import suite_tables
from reproduction.experiment import named
from reproduction.experiments import experiments
from reproduction.experiments.accuracy import label
from reproduction.profile import load
from reproduction.result_store import ResultStore
from reproduction.runner import known_runs, results_of
from reproduction.suite_scores import FILES, suite_data


def write_data(folder: Path, points: np.ndarray, values: np.ndarray) -> None:
    folder.mkdir(exist_ok=True)
    rows = "\n".join(" ".join(f"{number:.17g}" for number in row) for row in np.hstack([points, values]))
    (folder / FILES["poisson"]).write_text(f"% Nodes: {len(points)}\n% X Y u (1)\n{rows}\n")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one finished run of the smoke profile."""
    folder = tmp_path_factory.mktemp("runs")
    run = experiments()["table-poisson"].runs(load("smoke"))[0]
    train(run.settings, folder / run.name)
    return folder


def arrays(finished: Path) -> dict[str, np.ndarray]:
    (run,) = finished.glob("*/")
    return file_formats.read_arrays(run / PREDICTION)


def test_a_network_is_scored_at_the_nodes_of_a_file_against_its_values(finished: Path, tmp_path: Path) -> None:
    ours = arrays(finished)
    some = slice(5, 400, 7)
    values = ours["reference"][some] + 0.01
    values[:6] = 0.0
    write_data(tmp_path / "ref", ours["points"][some], values)
    store = ResultStore(tmp_path / "kept")
    assert store.import_runs(finished) == 1
    data = suite_data(tmp_path / "ref")
    assert store.score_by_suite(finished.glob("*/"), data) == 1
    (record,) = ResultStore(tmp_path / "kept").table("suite_scores").records.values()
    found, expected = record["result"], scores(ours["prediction"][some], values)
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, rel=1e-4)
    assert found["nodes"] == len(values)
    assert found["zeros"] == pytest.approx(6 / len(values))
    reference = scores(ours["reference"][some], values)["l2_relative"]
    assert found["reference"] == pytest.approx(reference, rel=1e-3)
    # Twice changes nothing; another file is scored again.
    assert store.score_by_suite(finished.glob("*/"), suite_data(tmp_path / "ref")) == 0
    write_data(tmp_path / "ref", ours["points"][some], values + 0.01)
    assert store.score_by_suite(finished.glob("*/"), suite_data(tmp_path / "ref")) == 1


def test_the_table_of_these_scores_says_how_many_runs_have_them(finished: Path, tmp_path: Path) -> None:
    ours = arrays(finished)
    write_data(tmp_path / "ref", ours["points"][:200], np.where(np.arange(200) < 18, 0, ours["reference"][:200].T).T)
    store, smoke, table = ResultStore(tmp_path / "kept"), load("smoke"), experiments()["table-poisson"]
    store.import_runs(finished)
    store.score_by_suite(finished.glob("*/"), suite_data(tmp_path / "ref"))
    results = results_of(table, smoke, store, known_runs(table.runs(smoke), store), {})
    (found,) = suite_tables(results.runs, "poisson", "Poisson 2D", label)
    text = found.markdown()
    assert "1 of 2" in text
    assert "0 of 2" in text
    zeros = float(np.mean(np.where(np.arange(200) < 18, 0, ours["reference"][:200].reshape(-1)) == 0))
    assert f"any network scores {percent(2 * zeros)} or more" in text
    without = [{**row, "suite": None} for row in results.runs]
    assert suite_tables(without, "poisson", "Poisson 2D", label) == []


def test_a_checkpoint_that_is_not_the_network_of_the_result_is_refused(finished: Path, tmp_path: Path) -> None:
    (run,) = finished.glob("*/")
    other = named(make_settings("poisson", "smoke", engine="ad", seed=5, epochs=6, evaluate_every=6))
    train(other.settings, tmp_path / "runs" / other.name)
    (tmp_path / "runs" / other.name / "checkpoint.pt").write_bytes((run / "checkpoint.pt").read_bytes())
    ours = arrays(finished)
    write_data(tmp_path / "ref", ours["points"][:50], ours["reference"][:50])
    store = ResultStore(tmp_path / "kept")
    store.import_runs(tmp_path / "runs")
    with pytest.raises(InputError, match=r"is not the network of its result|does not fit the settings"):
        store.score_by_suite((tmp_path / "runs").glob("*/"), suite_data(tmp_path / "ref"))


def test_the_command_scores_while_it_imports(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def call(*arguments: str) -> int:
        monkeypatch.setattr(sys, "argv", ["dudx", *arguments])
        with pytest.raises(SystemExit) as stop:
            command_line.main()
        return int(stop.value.code or 0)

    ours = arrays(finished)
    write_data(tmp_path / "ref", ours["points"][:50], ours["reference"][:50])
    common = ("--import", str(finished), "--profile", "smoke", "--out", str(tmp_path / "kept"), "--data")
    assert call(*common, str(tmp_path / "ref")) == 0
    assert "Scored 1 network at the suite's nodes." in capsys.readouterr().out
    assert call(*common, str(tmp_path / "nowhere")) == 1
    assert "There is no folder" in capsys.readouterr().err
    assert call(*common, str(tmp_path / "kept")) == 1
    assert "none of the suite's data files" in capsys.readouterr().err
    assert call("--from-data", "--data", str(tmp_path / "ref")) == 1
    assert "give it with --import" in capsys.readouterr().err
