from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from dudx.errors import InputError
from dudx.lab import file_formats
from dudx.lab.run.settings import make_settings
from dudx.lab.run.training import train
from reproduction import command_line, profile, runner
from reproduction.experiment import named
from reproduction.experiments import experiments
from reproduction.measurement_server import MeasurementServer
from reproduction.profile import load
from reproduction.result_store import ResultStore

EXPERIMENTS = experiments()
SMOKE = load("smoke")
EVERYTHING = list(EXPERIMENTS.values())


def call(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["dudx", *arguments])
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit) as stop:
        command_line.main()
    return int(stop.value.code or 0)


# -- measuring ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_measurements_have_processes_of_their_own() -> None:
    cost = {"network": "mlp", "variant": "FD", "width": 32, "depth": 2, "threads": 1, "seconds": 0.0, "device": "cpu"}
    function = "reproduction.measurements.step_cost:measure"
    with MeasurementServer() as server:
        assert server.result("builtins:dict", {"status": "ok"}) == {"status": "ok"}
        one, other = server.result("os:getpid", {}), server.result("os:getpid", {})
        assert one != other
        raised = server.result("math:sqrt", {"x": 1})
        died = server.result("os:abort", {})
        small, large = (server.result(function, {**cost, "memory_cap": 999, "batch": b}) for b in (2**13, 2**14))
        capped = server.result(function, {**cost, "memory_cap": 2, "batch": 2**14})
    assert raised["status"] == "failed"
    assert raised["reason"].startswith("TypeError")
    assert died == {"status": "failed", "reason": "Its process died by signal 6 (SIGABRT)."}
    # A step of twice the batch needs twice the memory: values, and what the backward pass needs of them.
    assert large["megabytes"] == pytest.approx(2 * small["megabytes"], rel=0.1)
    assert small["megabytes"] > 5 * 2**13 * 2 * 32 * 4 / 2**20  # five evaluations through two layers
    assert capped["status"] == "memory"


# -- profiles, plans, the command -------------------------------------------------------------------------------------


def test_the_paper_profile_is_the_published_protocol() -> None:
    paper = load("paper")
    runs = EXPERIMENTS["table-heat"].runs(paper)
    assert len(runs) == 5 * 25
    settings = runs[0].settings
    assert (settings.epochs, settings.batch, settings.width, settings.depth) == (20_000, 8192, 256, 4)
    assert (settings.optimizer, settings.learning_rate, settings.recalibrate) == ("adam", 1e-3, 4000)
    intervals = {run.settings.recalibrate for run in EXPERIMENTS["fig-5"].runs(paper)}
    assert intervals == {1, 4, 10, 40, 100, 400, 1000, 4000, 10_000}
    pretrained = EXPERIMENTS["appendix-b"].measurements(paper)[0].arguments
    assert (pretrained["epochs"], pretrained["pretraining_batch"], pretrained["points"]) == (2000, 256, 64)


def test_the_cpu_profile_has_seeds_enough_to_compare() -> None:
    cpu = load("cpu")
    assert cpu.accuracy["poisson"].seeds >= 5
    assert min(plan.seeds for plan in (*cpu.accuracy.values(), *cpu.interval.values(), cpu.coupled)) >= 3
    assert all(experiment.runs(cpu) or experiment.measurements(cpu) for experiment in EVERYTHING)


def test_a_run_is_named_after_its_settings() -> None:
    one, same, other = (
        named(make_settings("poisson", "smoke", engine="fd", network="batchnorm", coupled="ignore", width=width))
        for width in (8, 8, 9)
    )
    assert one == same
    assert re.fullmatch(r"poisson-fd-batchnorm-ignore-seed0-[0-9a-f]{8}", one.name)
    assert one.name != other.name


def test_on_poisson_efd_is_fd_which_is_why_it_is_not_run_twice(tmp_path: Path) -> None:
    for engine in ("fd", "efd"):
        train(make_settings("poisson", "smoke", engine=engine), tmp_path / engine)
    ours, theirs = (
        file_formats.read_checkpoint(tmp_path / engine / "checkpoint.pt")["model"] for engine in ("fd", "efd")
    )
    assert all(torch.equal(ours[key], theirs[key]) for key in ours)


def test_the_list_names_them_all(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["dudx", "--list"])
    with pytest.raises(SystemExit) as stop:
        command_line.main()
    assert not stop.value.code
    said = capsys.readouterr().out
    assert all(name in said for name in EXPERIMENTS)


def test_help_teaches() -> None:
    shown = CliRunner().invoke(command_line.app, ["--help"])
    assert shown.exit_code == 0
    assert "python -m reproduction table-poisson" in shown.stdout  # an example


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["table-9", "--out", "x"], "There is no experiment named 'table-9'; there are fig-1, table-1, "),
        (["fig-1", "--profile", "smoke", "--device", "", "--out", "x"], "device"),
        (["--import", "nowhere", "--out", "x"], "There is no folder 'nowhere'"),
        (["--out", "x"], "Name the experiments to reproduce, or give --all"),
        (["fig-1", "--all", "--out", "x"], "Name the experiments to reproduce, or give --all"),
        (["fig-1", "--out", "x", "--profile", "cpux"], "did you mean 'cpu'"),
        (["fig-1", "--out", "x", "--profile", "no.toml"], "cannot be read"),
        (["fig-1", "--out", "x", "--profile", "bad.toml"], "cost.seconds is not right"),
        (["fig-1", "--out", "x", "--profile", "few.toml"], "There is no problem named 'heart'; did you mean 'heat'?"),
        (["fig-1", "--out", "x", "--profile", "slow.toml"], "There is no engine named 'slow'"),
        (["fig-1", "--out", "x", "--profile", "smoke", "--workers", "0"], "at least one worker"),
        (["fig-1", "--out", "x", "--profile", "smoke", "--device", "gpu"], "device is not right"),
        (["--from-data", "--out", "nowhere"], "There are no results of these experiments in 'nowhere'"),
        (["--from-data"], "There are no results of these experiments in 'results'"),
        (["fig-4", "--from-data", "--out", "nowhere"], "There are no results of 'fig-4' in 'nowhere'"),
    ],
)
def test_hostile_arguments_are_one_sentence(
    arguments: list[str], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    shipped = Path(profile.__file__).parent / "profiles" / "smoke.toml"
    (tmp_path / "bad.toml").write_text(shipped.read_text().replace("seconds = 0.01", 'seconds = "long"'))
    (tmp_path / "few.toml").write_text(shipped.read_text().replace("[accuracy.heat]", "[accuracy.heart]"))
    (tmp_path / "slow.toml").write_text(shipped.read_text().replace('"ad"', '"slow"'))
    assert call(monkeypatch, *arguments) == 1
    said = capsys.readouterr().err
    assert sentence in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("file", "content", "sentence"),
    [
        ("runs.npz", b"PK no archive", "runs.npz' is damaged"),
        ("runs.csv", b"problem,engine\nheat,ad\n", "runs.csv' is damaged: line 2 has no 'name'"),
        ("runs.csv", b"name,result/status\na,ok,3\n", "runs.csv' is damaged: row 2 has not as many fields"),
        ("runs.csv", b"\xff\xfe\x00binary", "runs.csv' is damaged"),
        ("step_cost.csv", b"", "step_cost.csv' is damaged: it has no rows"),
        ("machines.json", b"{", "machines.json' cannot be read"),
        ("machines.json", b"[1]", "machines.json' is damaged"),
    ],
)
def test_damaged_results_are_one_sentence(
    file: str, content: bytes, sentence: str, smoke: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    for path in smoke.glob("*.*"):
        if path.suffix in (".csv", ".npz", ".json"):  # without the sums, which would tell first
            shutil.copy(path, tmp_path)
    (tmp_path / file).write_bytes(content)
    assert call(monkeypatch, "--from-data", "--profile", "smoke", "--out", str(tmp_path)) == 1
    said = capsys.readouterr().err
    assert sentence in said
    assert said.count("\n") == 1


def test_results_that_are_not_what_was_written_are_refused(
    smoke: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    copied = shutil.copytree(smoke, tmp_path / "copy", ignore=shutil.ignore_patterns("runs", "figures", "tables"))
    path = copied / "step_curves.csv"
    text = path.read_text()
    digit = next(number for number, letter in enumerate(text) if letter in "345")
    path.write_text(text[:digit] + "2" + text[digit + 1 :])
    assert call(monkeypatch, "table-1", "--from-data", "--profile", "smoke", "--out", str(copied)) == 1
    assert "step_curves.csv' is damaged: its checksum is not that" in capsys.readouterr().err


def test_an_experiment_that_is_not_there_is_named() -> None:
    with pytest.raises(InputError, match="There is no experiment named 'fig-6'; there are fig-1"):
        runner.chosen(["fig-1", "fig-6"])
    assert [e.name for e in runner.chosen(["fig-4", "fig-1"])] == ["fig-1", "fig-4"]
    assert [e.name for e in runner.chosen(["tablepoisson", "fig4"])] == ["table-poisson", "fig-4"]


@pytest.mark.parametrize(
    ("name", "folder", "drawn"),
    [
        ("cpu", "results/cpu", "results/cpu"),
        ("protocol-slow", "results/protocol", "results/protocol-slow"),
        ("mine.toml", "results/mine", "results/mine"),
    ],
)
def test_results_go_to_the_folder_of_their_profile(
    name: str, folder: str, drawn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").write_text('like = "smoke"\n')
    asked: list[Path] = []

    def reproduce(
        experiments: Any, profile: Any, out: Path, workers: Any, collect: bool, drawn: Path, *others: Any
    ) -> runner.Done:
        asked.extend([out, drawn])
        return runner.Done()

    monkeypatch.setattr(runner, "reproduce", reproduce)
    assert call(monkeypatch, "fig-1", "--profile", name) == 0
    assert asked == [Path(folder), Path(drawn)]


@pytest.mark.slow
def test_finished_runs_are_imported_by_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = EXPERIMENTS["table-poisson"].runs(SMOKE)
    for run in runs[:2]:
        train(run.settings, tmp_path / "runs" / run.name)
    command = ["--import", str(tmp_path / "runs"), "--profile", "smoke", "--out", str(tmp_path / "kept")]
    for sentence in ("Added 2 runs to", "Added 0 runs to"):
        assert call(monkeypatch, *command) == 0
        assert sentence in capsys.readouterr().out
    known = ResultStore(tmp_path / "kept")
    assert [known.run(run) is not None for run in runs] == [True, True, *[False] * (len(runs) - 2)]
