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
from dudx.lab.atomic_files import SUMS
from dudx.lab.run.settings import make_settings
from dudx.lab.run.training import train
from reproduction import program, runner
from reproduction.command import Choice
from reproduction.estimates import estimate
from reproduction.experiments import experiments, profile
from reproduction.experiments.base import named
from reproduction.experiments.profile import load
from reproduction.measuring import Measuring

EXPERIMENTS = experiments()
SMOKE = load("smoke")
EVERYTHING = list(EXPERIMENTS.values())


def call(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["dudx", *arguments])
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit) as stop:
        program.main()
    return int(stop.value.code or 0)


# -- measuring ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_measurements_have_processes_of_their_own() -> None:
    cost = {"network": "mlp", "way": "FD", "width": 32, "depth": 2, "threads": 1, "seconds": 0.0, "device": "cpu"}
    function = "reproduction.experiments.cost:measure"
    with Measuring() as server:
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


def test_a_plan_tells_what_is_left_and_what_it_costs(
    smoke: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [
        "fig-1",
        "table-poisson",
        "fig-2",
        "appendix-b",
        "--profile",
        "smoke",
        "--plan",
        "--workers",
        "2",
    ]
    assert call(monkeypatch, *command, "--out", str(tmp_path / "none")) == 0
    said = capsys.readouterr().out
    assert re.search(r"fig-1 +│ poisson sfd, 6 epochs +│ +1 │ +1 │", said)
    assert re.search(r"table-poisson +│ poisson sfd, 6 epochs +│ +1 │ +1 │", said)  # the other seed is counted above
    assert re.search(r"fig-2 +│ fp32 +│ +2 │ +2 │", said)
    assert re.search(r"In all \d+ core-seconds of training and \d+ s of measurements: about .* with 2 workers", said)
    assert not (tmp_path / "none").exists()
    plan = estimate(EVERYTHING, SMOKE, smoke)
    assert (plan.runs, plan.measurements) == (0, 0)
    assert all(line.left == 0 for line in plan.lines)


def test_the_estimate_of_a_run_is_its_epochs_calibrations_and_evaluations(monkeypatch: pytest.MonkeyPatch) -> None:
    from reproduction import estimates

    monkeypatch.setattr(estimates, "_speed", lambda settings: (0.1, 2.0, 30.0))
    plan = estimate([EXPERIMENTS["fig-1"]], load("paper"), Path("nowhere"))
    # 20 000 epochs, 5 calibrations, an evaluation every 500 epochs and two at the end.
    assert plan.runs == pytest.approx(20_000 * 0.1 + 5 * 2.0 + 42 * 30.0)
    assert plan.wall(2) == pytest.approx(plan.runs / 2)


def test_the_list_names_them_all(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["dudx", "--list"])
    with pytest.raises(SystemExit) as stop:
        program.main()
    assert not stop.value.code
    said = capsys.readouterr().out
    assert all(name in said for name in EXPERIMENTS)


def test_help_teaches() -> None:
    shown = CliRunner().invoke(program.app, ["--help"])
    assert shown.exit_code == 0
    assert "python -m reproduction table-poisson" in shown.stdout  # an example


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["table-9", "--out", "x"], "There is no experiment named 'table-9'; there are fig-1, table-1, "),
        (["fig-1", "--profile", "smoke", "--device", "", "--out", "x"], "device"),
        (["--report", "nowhere"], "There are no data"),
        (["--out", "x"], "Name the experiments to reproduce, or give --all"),
        (["fig-1", "--all", "--out", "x"], "Name the experiments to reproduce, or give --all"),
        (["fig-1", "--out", "x", "--profile", "cpux"], "did you mean 'cpu'"),
        (["fig-1", "--out", "x", "--profile", "no.toml"], "cannot be read"),
        (["fig-1", "--out", "x", "--profile", "bad.toml"], "cost.seconds is not right"),
        (["fig-1", "--out", "x", "--profile", "few.toml"], "There is no problem named 'heart'; did you mean 'heat'?"),
        (["fig-1", "--out", "x", "--profile", "slow.toml"], "There is no engine named 'slow'"),
        (["fig-1", "--out", "x", "--profile", "smoke", "--workers", "0"], "at least one worker"),
        (["fig-1", "--out", "x", "--profile", "smoke", "--device", "gpu"], "device is not right"),
        (["--from-data", "nowhere"], "There are no data in 'nowhere/data'"),
        (["fig-4", "--from-data", "nowhere"], "There are no data of 'fig-4' in 'nowhere/data'"),
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
        ("fig-1/solution.npz", b"PK no archive", "solution.npz' is damaged"),
        ("fig-2/curves.npz", None, "There is no file"),
        ("table-heat/runs.csv", b"name,problem\nx,heat\n", "runs.csv' is damaged: line 2 has no 'engine'"),
        ("fig-5/runs.csv", b"\xff\xfe\x00binary", "runs.csv' is damaged"),
        ("fig-4/cost.csv", b"", "cost.csv' is damaged: it has no rows"),
        ("table-1/optima.csv", "tiny", "is no number"),
        ("table-poisson/configs.json", b"{", "configs.json' cannot be read"),
        ("table-poisson/configs.json", b"[1]", "configs.json' is damaged"),
    ],
)
def test_damaged_data_are_one_sentence(
    file: str, content: Any, sentence: str, smoke: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    path = tmp_path / "data" / file
    shutil.copytree((smoke / "data" / file).parent, path.parent)
    (path.parent / SUMS).unlink()  # as data that are older than the sums
    if content is None:
        path.unlink()
    elif isinstance(content, str):  # in place of the first step
        text = path.read_text()
        path.write_text(text.replace(text.splitlines()[1].split(",")[5], content))
    else:
        path.write_bytes(content)
    assert call(monkeypatch, "--from-data", str(tmp_path)) == 1
    said = capsys.readouterr().err
    assert sentence in said
    assert said.count("\n") == 1


def test_data_that_are_not_what_was_written_are_refused(
    smoke: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    path = tmp_path / "data" / "table-1" / "optima.csv"
    shutil.copytree((smoke / "data" / "table-1"), path.parent)
    text = path.read_text()
    digit = next(number for number, letter in enumerate(text) if letter in "345")
    path.write_text(text[:digit] + "2" + text[digit + 1 :])
    assert call(monkeypatch, "--from-data", str(tmp_path)) == 1
    assert "optima.csv' is damaged: it is not what was written" in capsys.readouterr().err


def test_an_experiment_that_is_not_there_is_named() -> None:
    with pytest.raises(InputError, match="There is no experiment named 'fig-6'; there are fig-1"):
        runner.chosen(["fig-1", "fig-6"])
    assert [e.name for e in runner.chosen(["fig-4", "fig-1"])] == ["fig-1", "fig-4"]
    assert [e.name for e in runner.chosen(["tablepoisson", "fig4"])] == ["table-poisson", "fig-4"]


@pytest.mark.parametrize(("profile", "folder"), [("cpu", "results/cpu"), ("settings/mine.toml", "results/mine")])
def test_results_go_to_the_folder_of_their_profile(profile: str, folder: str) -> None:
    assert Choice([], True, profile, None).folder == Path(folder)
