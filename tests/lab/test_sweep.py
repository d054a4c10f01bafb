from __future__ import annotations

import contextlib
import csv
import io
import multiprocessing.spawn
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

import pytest
from sweeps import assert_same, control_c_when, epoch, wait_until

from dudx.errors import InputError
from dudx.lab import cli, file_formats, sweep, train
from dudx.lab.run.settings import make_settings, parsed
from dudx.lab.sweep import Run, grid, local_workers, run_sweep, sweep_table
from dudx.lab.sweep.sweep_run import Outcome, Work, execute, write_death

DIVERGING = {"optimizer": "torch.optim:SGD", "learning_rate": 1e12, "schedule": "constant"}


@pytest.fixture(autouse=True)
def mischief(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MISCHIEF", str(tmp_path))
    return tmp_path


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def in_this_process(runs: Sequence[Run], folder: Path, *others: object) -> Work:
    """Stands in for the workers where it is not they who are tested."""
    for run in runs:
        execute(run, folder / run.name)
        yield run, None


def never(*arguments: object) -> Any:
    raise AssertionError("there is nothing to run")


def test_a_grid_has_every_combination_and_names_that_stay_when_it_grows() -> None:
    runs = grid("smoke", problem=["heat", "burgers"], engine=["ad", "sfd"], width=[8, 16], seed=range(2), epochs=3)
    assert len(runs) == 16
    assert runs[0].name == "heat-ad-width8-seed0"
    assert (runs[-1].settings.problem, runs[-1].settings.engine) == ("burgers", "sfd")
    assert (runs[-1].settings.width, runs[-1].settings.seed, runs[-1].settings.epochs) == (16, 1, 3)
    one = grid("smoke", problem=["heat"], engine=["ad"], width=[8], seed=[0], epochs=3)
    assert one == runs[:1]
    assert grid(problem="my.module:own", seed=[7])[0].name == "seed7"
    assert "/" not in grid(problem=["a/b:own"], seed=[7])[0].name


@pytest.mark.parametrize(
    ("runs", "options", "sentence"),
    [
        (grid("smoke", problem=["burgers"], engine=["edf"]), {}, "did you mean 'efd'"),
        (grid("smoke", problem=["poison"]), {}, "did you mean 'poisson'"),
        (grid("smoke", problem=["nowhere:p"]), {}, "cannot be imported"),
        (grid("smoke", problem=["burgers"], network="mpl"), {}, "did you mean 'mlp'"),
        (grid("smoke", problem=["burgers"], optimizer="adm"), {}, "did you mean 'adam'"),
        (grid("smoke", problem=["heat"]) * 2, {}, "Two runs of the sweep are named 'heat'"),
        ([Run("../out", make_settings("heat", "smoke"))], {}, "cannot be one"),
        (grid("smoke", problem=["heat"]), {"workers": 0}, "at least one worker"),
        (grid("smoke", problem=["heat"]), {"retries": -1}, "cannot be negative"),
    ],
)
def test_what_would_make_every_run_fail_is_said_before_the_first_begins(
    runs: list[Run], options: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=re.escape(sentence)):
        run_sweep(runs, tmp_path / "sweep", **options)
    assert not (tmp_path / "sweep").exists()


def test_a_script_that_workers_would_run_again_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multiprocessing.current_process(), "_inheriting", True, raising=False)
    with pytest.raises(InputError, match="below if __name__ == '__main__'"):
        run_sweep(grid("smoke", problem=["heat"]), tmp_path / "sweep")
    assert not (tmp_path / "sweep").exists()


def test_a_grid_without_a_problem_is_refused() -> None:
    with pytest.raises(InputError, match="needs a problem"):
        grid(engine=["ad"])


# -- worker processes ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Undisturbed runs."""
    folder = tmp_path_factory.mktemp("whole")
    for seed in range(2):
        train(make_settings("burgers", "smoke", engine="sfd", seed=seed), folder / f"sfd{seed}")
    return folder


@dataclass
class Swept:
    runs: list[Run]
    outcomes: list[Outcome]
    folder: Path
    said: str


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Swept:
    """Results of one worker for runs that differ as much as possible; the last one kills it."""
    folder = tmp_path_factory.mktemp("swept")
    runs = [
        Run("different", make_settings("poisson", "smoke", epochs=2, threads=2, dtype="float64")),
        Run("diverging", make_settings("burgers", "smoke", **DIVERGING)),
        *grid("smoke", problem=["burgers", "mischief:killed"], engine=["sfd"], seed=range(2))[:3],
    ]
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stderr(io.StringIO()) as said:
        patch.setenv("MISCHIEF", str(tmp_path_factory.mktemp("marks")))
        outcomes = run_sweep(runs, folder, workers=1)
        assert Path(os.environ["MISCHIEF"], "killed").exists()
    return Swept(runs, outcomes, folder, said.getvalue())


@pytest.mark.slow
def test_one_worker_does_run_after_run_and_the_numbers_are_those_of_a_fresh_process(swept: Swept, whole: Path) -> None:
    assert [o.name for o in swept.outcomes] == [run.name for run in swept.runs]
    assert [o.status for o in swept.outcomes] == ["finished", "diverged", "finished", "finished", "finished"]
    for seed in range(2):
        assert_same(swept.folder / f"burgers-sfd-seed{seed}", whole / f"sfd{seed}")


def test_a_run_whose_worker_is_killed_goes_on_in_another(swept: Swept, whole: Path) -> None:
    assert_same(swept.folder / "mischief_killed-sfd-seed0", whole / "sfd0")


def test_a_line_for_each_run_and_nothing_else_is_shown(swept: Swept) -> None:
    assert re.search(r"^4/5  burgers-sfd-seed1  finished  L2 83 %  left \d+ s$", swept.said, re.MULTILINE)
    assert swept.said.count("\n") == 5
    assert "epoch 20/20" in (swept.folder / "burgers-sfd-seed1" / "train.log").read_text()
    assert {path.name for path in swept.folder.iterdir()} == {run.name for run in swept.runs}


def test_what_is_finished_or_diverged_is_not_run_again_and_other_settings_are_refused(
    swept: Swept, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_workers, "work", never)
    assert run_sweep(swept.runs, swept.folder) == swept.outcomes
    with pytest.raises(InputError, match=r"burgers-sfd-seed1.* has epochs = 20, not 21"):
        run_sweep(grid("smoke", problem=["burgers"], engine=["sfd"], seed=[1], epochs=21), swept.folder)


def test_a_run_whose_workers_keep_dying_has_failed_and_the_next_invocation_tries_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = grid("smoke", problem=["burgers"], seed=range(2))
    resource_tracker.ensure_running()  # with a real interpreter
    monkeypatch.setattr(multiprocessing.spawn, "_python_exe", b"/bin/false")
    found = run_sweep(runs, tmp_path, workers=2, retries=1)
    assert [o.status for o in found] == ["failed", "failed"]
    assert found[0].reason == "Its process died, in attempt 2 of 2 by exit with code 1."
    tried = []
    monkeypatch.setattr(local_workers, "work", lambda runs, *_: (tried.append(run.name) or (run, None) for run in runs))
    run_sweep(runs, tmp_path)
    assert tried == ["burgers-seed0", "burgers-seed1"]


def test_control_c_while_a_failed_run_is_tried_again_leaves_it_unfinished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = grid("smoke", problem=["burgers"], seed=range(2))
    write_death(tmp_path / "burgers-seed0", 1, "exit with code 1")

    def stopped(runs: list[Run], *_: object) -> Work:
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr(local_workers, "work", stopped)
    assert [o.status for o in run_sweep(runs, tmp_path)] == ["interrupted", "interrupted"]


def test_a_worker_for_each_core_and_one_for_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "cores", lambda: 8)
    for threads, workers in {1: 8, 3: 2, 99: 1}.items():
        assert sweep.suggested_workers(grid("smoke", problem="heat", threads=threads)) == workers
    assert sweep.suggested_workers(grid("smoke", problem="heat", threads=1, device="cuda")) == 1


@pytest.mark.parametrize(("problem", "hired"), [("burgers", 1), ("mischief:slow", 2)])
def test_own_code_meets_a_fresh_process_every_time(
    problem: str, hired: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dismissed = []

    class Worker:
        def __init__(self, log: object):
            self.pool, self.connection = ThreadPoolExecutor(1), io.BytesIO()

        def exit(self) -> str:
            dismissed.append(self)
            self.pool.shutdown()
            return ""

    monkeypatch.setattr(local_workers, "_train", lambda run, folder: ("finished", None))
    monkeypatch.setattr(local_workers, "_Worker", Worker)
    run_sweep(grid("smoke", problem=problem, seed=range(2)), tmp_path, workers=1)
    assert len({id(worker) for worker in dismissed}) == hired


# -- the command ---------------------------------------------------------------------------------------------------


def call(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["dudx", "sweep", *arguments])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    return int(stop.value.code or 0)


def read_csv(folder: Path) -> list[dict[str, str]]:
    with (folder / "sweep.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_what_failed_is_counted_and_shown_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "sweep"
    command = ["burgers", "mischief:crashing", "--profile", "smoke", "--engines", "sfd", "--seeds", "0-0"]
    command += ["--set", "weight_initial=10.0,1e39", "--out", str(out)]  # the latter overflows
    monkeypatch.setattr(local_workers, "work", in_this_process)
    assert call(monkeypatch, *command) == 3
    said = capsys.readouterr()
    failed = "mischief_crashing-sfd-weight_initial10.0-seed0"
    assert said.err.count(f"dudx: {failed} failed: ValueError: the sky fell\n") == 1
    assert "Traceback" not in said.err
    rows = read_csv(out)
    assert [row["status"] for row in rows] == ["finished", "diverged", "failed", "diverged"]
    assert [row["problem"] for row in rows] == ["burgers"] * 2 + ["mischief:crashing"] * 2
    assert float(rows[0]["l2_relative"]) == file_formats.read_json(out / rows[0]["name"] / "result.json")["l2_relative"]
    assert (rows[0]["seed"], rows[0]["epochs"], rows[2]["reason"]) == ("0", "20", "ValueError: the sky fell")
    assert re.search(r"mischief:crashing +│ sfd +│ 10.0 +│ +- │ +- │ +0 │ +0 │ +1 │", said.out)
    assert re.search(r"burgers +│ sfd +│ 10.0 +│ +89 % │ .*│ +1 │ +0 │ +0 │", said.out)
    assert "Traceback" in (out / rows[2]["name"] / "train.log").read_text()

    (tmp_path / "forgiven").touch()
    assert call(monkeypatch, *command) == 3  # one still has diverged
    rows = read_csv(out)
    assert [row["status"] for row in rows] == ["finished", "diverged", "finished", "diverged"]
    assert rows[0]["l2_relative"] == rows[2]["l2_relative"]


def test_the_mean_is_over_what_finished() -> None:
    settings = make_settings("burgers", "smoke")

    def run(seed: int, status: Any, error: float | None) -> Outcome:
        result = {"l2_relative": error, "seconds": 2.0 * seed}
        return Outcome(f"{seed}", settings.model_copy(update={"seed": seed}), status, result)

    outcomes = [run(0, "finished", 0.1), run(1, "finished", 0.3), run(2, "diverged", 9.0), run(3, "failed", None)]
    (group,) = sweep_table.groups(outcomes, ["problem", "engine"])
    assert group.mean == pytest.approx(0.2)
    assert group.deviation == pytest.approx(0.02**0.5)
    assert dict(group.counts) == {"finished": 2, "diverged": 1, "failed": 1}
    assert group.seconds == [0.0, 2.0]
    (alone,) = sweep_table.groups(outcomes[:1], ["problem"])
    assert (alone.mean, alone.deviation) == (0.1, None)


def test_seeds_and_settings_as_they_are_typed() -> None:
    assert sweep_table.parsed_seeds("0-2,7") == [0, 1, 2, 7]
    assert parsed(["width=8,16", "rescale=true", "learning_rate=1e-3", "optimizer=soap"], []) == {
        "width": [8, 16],
        "rescale": True,
        "learning_rate": 1e-3,
        "optimizer": "soap",
    }


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["burgers", "--seeds", "0-"], "Seeds are given as 0-4 or 0,1,2; got '0-'"),
        (["burgers", "--seeds", "4-0"], "at least one"),
        (["burgers", "--seeds", "1,1"], "without repetition"),
        (["burgers", "--engines", "ad,edf"], "did you mean 'efd'"),
        (["burgers", "--set", "witdh=8"], "witdh = 8 is not right: there is no such setting"),
        (["burgers", "--set", "width"], "KEY=VALUE"),
        (["burgers", "--set", "seed=4"], "has an option of its own"),
        (["burgers", "--profile", "smok"], "did you mean 'smoke'"),
    ],
)
def test_hostile_arguments_are_one_sentence(
    arguments: list[str], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    assert call(monkeypatch, "--profile", "smoke", *arguments, "--out", str(tmp_path / "sweep")) == 1
    said = capsys.readouterr().err
    assert sentence in said
    assert said.count("\n") == 1
    assert not (tmp_path / "sweep").exists()


@pytest.mark.slow
def test_stopped_and_killed_a_sweep_ends_with_the_numbers_of_an_undisturbed_one(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "sweep"
    arguments = ["mischief:slow", "--profile", "smoke", "--engines", "sfd", "--seeds", "0-1", "--out", str(out)]
    arguments += ["--workers", "1"]
    first, second = (out / f"mischief_slow-sfd-seed{seed}" for seed in range(2))

    with control_c_when(lambda: epoch(first) >= 0):
        assert call(monkeypatch, *arguments) == 130
    assert capsys.readouterr().err == "dudx: stopped with 0 of 2 runs finished; the same command goes on.\n"
    assert [row["reason"] for row in read_csv(out)] == ["stopped", "not begun"]
    assert [row["status"] for row in read_csv(out)] == ["interrupted"] * 2
    reached = epoch(first)
    assert reached == file_formats.read_json(first / "result.json")["epochs"] < 20
    assert not (out / "sweep.lock").exists()

    driver = subprocess.Popen(
        [sys.executable, "-m", "dudx.lab.cli", "sweep", *arguments],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    wait_until(lambda: epoch(first) > reached, "the first run goes on")
    worker = int((first / "run.lock").read_text().split()[0])
    driver.kill()
    driver.wait()
    wait_until(lambda: not alive(worker), "the worker notices that it is alone")
    assert epoch(first) < 20
    assert (out / "sweep.lock").exists()  # left behind, and not in the way

    (tmp_path / "forgiven").touch()
    runs = grid("smoke", problem=["mischief:slow"], engine=["sfd"], seed=range(2))
    monkeypatch.setattr(local_workers, "work", in_this_process)
    assert [o.status for o in run_sweep(runs, out)] == ["finished", "finished"]
    assert_same(first, whole / "sfd0")
    assert_same(second, whole / "sfd1")
