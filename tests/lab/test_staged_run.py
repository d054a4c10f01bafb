"""One run per solution: its table, its limit in seconds, its windows of time, and how it is interrupted and resumed."""

from __future__ import annotations

import gc
import json
import math
import os
import re
import signal
import time
import warnings
import weakref
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from resuming import Killed, same

from dudx.errors import InputError
from dudx.lab import Box, Dirichlet, Initial, Interval, Problem, Solution, file_formats, solve
from dudx.lab.problems.well_posedness import ProblemWarning
from dudx.lab.run.networks.mlp import MLP
from dudx.lab.run.trainer import Trainer
from dudx.lab.solving import stage, staged, time_windows

TINY: dict[str, Any] = {"width": 6, "depth": 2, "batch": 60, "boundary_batch": 30, "initial_batch": 30}
TINY |= {"quiet": True, "log_every": 1, "checkpoint_every": 4}


def decay(**more: Any) -> Problem:
    return Problem(lambda u: u.t + u, ("t",), Interval(0, 2), [Initial(u=3.0)], **more)


def line() -> Problem:
    return Problem(lambda u: u.xx, ("x",), Interval(0, 1), [Dirichlet(u=lambda x: x)], title="A line")


def always_lost(patch: pytest.MonkeyPatch) -> None:
    """Give up the first network halfway, and halve the first window."""
    patch.setattr(stage, "CHECKS", ((1 / 2, -1.0),))
    patch.setattr(stage, "FIRST_STEPS", 1)
    patch.setattr(staged, "_FIRST", 1 / 2)
    patch.setattr(staged, "_SHORTEST", 1 / 4)


@pytest.fixture(autouse=True, scope="module")
def _little_to_collect() -> None:
    """A window that begins collects garbage, which takes longer the more objects the process has."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def lost(monkeypatch: pytest.MonkeyPatch) -> None:
    always_lost(monkeypatch)


def in_windows(out: Path | None = None, **more: Any) -> Solution:
    return solve(decay(), minutes=1000, out=out, **{**TINY, "epochs": 4, **more})  # the steps end it, not the time


@dataclass
class Undisturbed:
    """A run in windows, and what was seen at the beginning of each window.

    Attributes:
        trainers_alive: the number of trainers there were.
        warm_starts: the number of windows before, and whether the network is that of the last one.
        trainers_left: the number of trainers after the run.
    """

    folder: Path
    trainers_alive: list[int] = field(default_factory=list)
    warm_starts: list[tuple[int, bool]] = field(default_factory=list)
    solution: Any = None
    trainers_left: int = -1


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    run = Undisturbed(tmp_path_factory.mktemp("undisturbed") / "run")
    trainers: weakref.WeakSet[Trainer] = weakref.WeakSet()
    made, begun = Trainer.__init__, staged.StagedRun._begin_window

    def init(self: Trainer, *args: Any, **more: Any) -> None:
        made(self, *args, **more)
        trainers.add(self)

    def begin(self: staged.StagedRun, *args: Any) -> None:
        begun(self, *args)
        run.trainers_alive.append(len(trainers))
        if self.networks:
            ours, last = (dict(network.named_parameters()) for network in (self.trainer.model, self.networks[-1]))
            run.warm_starts.append((len(self.networks), same(ours, last)))

    with pytest.MonkeyPatch.context() as patch:
        always_lost(patch)
        patch.setattr(Trainer, "__init__", init)
        patch.setattr(staged.StagedRun, "_begin_window", begin)
        run.solution = in_windows(run.folder)
    gc.collect()
    run.trainers_left = len(trainers)
    return run


# -- one table -------------------------------------------------------------------------------------------------------


def assert_whole(history: list[dict[str, str]], result: dict[str, Any]) -> None:
    assert [int(row["epoch"]) for row in history] == list(range(1, result["epochs"] + 1))
    spent = [float(row["cpu_seconds"]) for row in history]
    assert spent == sorted(spent)
    assert spent[-1] <= result["cpu_seconds"] + 1e-3
    assert all(row["loss"] for row in history)


def test_the_history_covers_the_whole_training_and_is_saved(tmp_path: Path) -> None:
    solution = solve(line(), minutes=10, epochs=16, **TINY)
    assert_whole(solution.history, solution.result)
    estimates = [int(row["epoch"]) for row in solution.history if row["estimate"]]
    assert {2, 4, 8} <= set(estimates)  # an eighth, a quarter, half
    assert float(solution.history[estimates[-1] - 1]["estimate"]) == pytest.approx(solution.estimate)
    kept = solution.save(tmp_path / "kept")
    assert file_formats.read_table(kept / "metrics.csv") == solution.history
    assert json.loads((kept / "result.json").read_text())["epochs"] == solution.result["epochs"]


def test_the_history_covers_all_windows(undisturbed: Undisturbed, tmp_path: Path) -> None:
    solution = undisturbed.solution
    assert_whole(solution.history, solution.result)
    numbers = [int(row["window"]) for row in solution.history]
    assert numbers == sorted(numbers)
    assert set(numbers) == set(range(len(solution.result["windows"]) + 1))
    kept = solution.save(tmp_path / "kept")
    assert file_formats.read_table(kept / "metrics.csv") == solution.history
    assert not list(kept.glob("*/"))  # one run, one folder


# -- the limit in seconds --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("windows", [False, True])
def test_the_seconds_are_a_limit(windows: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staged, "_GOOD", 0.0)  # no window is good enough, so that each is halved while that is possible
    monkeypatch.setattr(staged, "_DONE", 0.0)
    solve(decay(), seconds=0.5, windows=False, **TINY)  # what the first call costs in addition
    began = time.process_time()
    solution = solve(decay(), seconds=4.0, windows=windows, enough=0.0, settled=0, **TINY)
    spent = time.process_time() - began
    assert solution.result["cpu_seconds"] <= 1.1 * 4.0
    assert spent <= 1.1 * 4.0 + 0.5
    assert solution.result["cpu_seconds"] > 2.0


def test_trainers_of_finished_windows_are_released(undisturbed: Undisturbed) -> None:
    assert len(undisturbed.trainers_alive) > 3
    assert set(undisturbed.trainers_alive) == {1}
    assert undisturbed.trainers_left == 0


# -- where windows are used ------------------------------------------------------------------------------------------


def test_only_evolution_problems_can_be_cut() -> None:
    strip, zero = Interval(0, 1) * Interval(0, 1), Dirichlet(u=0.0)
    still = Problem(lambda u: u.xx + 1, ("x", "t"), strip, [zero, Initial(u=0.0)])
    wave = Problem(lambda u: u.tt - u.xx, ("x", "t"), strip, [zero, Initial(u=0.0)])
    whole = Problem(lambda u: u.tt - u.xx, ("x", "t"), strip, [zero, Initial(u=0.0, u_t=0.0)])
    assert not time_windows.can_be_cut(still)
    assert not time_windows.can_be_cut(wave)  # of second order in time, with one initial value
    assert time_windows.can_be_cut(whole)
    assert not time_windows.can_be_cut(decay(unknowns={"rate": 1.0}))
    with pytest.raises(InputError, match="cannot be cut into windows"):
        solve(still, windows=True, **TINY)


def test_a_stationary_problem_has_no_windows(lost: None) -> None:
    solution = solve(line(), minutes=10, epochs=8, **TINY)
    assert "windows" not in solution.result
    assert "time windows" not in solution.save_html(Path(solution._folder or ".") / "a.html").read_text()


def heat(start: Any) -> Problem:
    conditions = [Dirichlet(u=0.0), Initial(u=start)]
    return Problem(lambda u: u.t - u.xx, ("x", "t"), Interval(0, 1) * Interval(0, 1), conditions)


def decided(problem: Problem, estimate: staged.Estimate, steps: int = 100, before: float = math.inf) -> bool:
    """Return True if an estimate at a check against 3 % starts windows."""
    begun: list[Any] = []
    run = staged.StagedRun.__new__(staged.StagedRun)
    run.trainer = type("T", (), {"epoch": steps, "model": None})()  # type: ignore[assignment]
    run.stage = stage.Stage(0, 0.0, 0.0, 0.0, 10.0, error=before)
    run.problem, run._cuttable, run.reason = problem, True, None
    run._options, run._report = {"enough": 0.0, "windows": None}, lambda text: None
    run._abandon = begun.append  # type: ignore[method-assign]
    run._decide(None, 0.03, estimate)
    return bool(begun)


@pytest.mark.parametrize(("late", "expected"), [(0.01, False), (0.05, True)])
def test_a_singular_corner_is_no_reason_for_windows(late: float, expected: bool) -> None:
    singular, smooth = heat(1.0), heat(lambda x: torch.sin(math.pi * x))
    assert singular.starts_with_jump
    assert not smooth.starts_with_jump
    found = staged.Estimate(0.09, 1, 1, late)
    assert decided(singular, found) is expected
    assert decided(smooth, found)


@pytest.mark.parametrize(("steps", "before", "expected"), [(100, 0.2, True), (20, 0.2, False), (20, 0.05, True)])
def test_few_steps_are_lost_only_where_the_error_no_longer_falls(steps: int, before: float, expected: bool) -> None:
    assert decided(decay(), staged.Estimate(0.09, 1, 1, 0.09), steps, before) is expected


def test_a_window_starts_from_the_network_of_the_last_one(undisturbed: Undisturbed) -> None:
    assert {number for number, _ in undisturbed.warm_starts} >= {1, 2}
    assert all(equal for _, equal in undisturbed.warm_starts)


def test_other_networks_are_not_copied() -> None:
    network, other = MLP(1, 1, 4, 1), MLP(1, 1, 5, 1)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    time_windows.warm_start(network, other)
    assert same(before, network.state_dict())


def test_the_one_network_is_returned_where_windows_do_worse(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(stage, "CHECKS", ((3 / 4, -1.0),))
    monkeypatch.setattr(stage, "FIRST_STEPS", 1)
    monkeypatch.setattr(staged.StagedRun, "_can_halve", lambda self: False)
    trained = staged.StagedRun._window_trainer

    def hardly(self: staged.StagedRun, *args: Any) -> Trainer:
        trainer = trained(self, *args)
        trainer.epochs = 1
        return trainer

    monkeypatch.setattr(staged.StagedRun, "_window_trainer", hardly)
    solution = in_windows(epochs=20, quiet=False)
    assert "windows" not in solution.result
    assert isinstance(solution.network, MLP)
    assert solution.error(lambda t: 3 * np.exp(-t)) < 0.1
    assert solution.estimate is None  # its training was lost, so its estimate cannot be trusted
    said = capsys.readouterr().err
    assert "the one network is returned" in said
    assert "No error estimate" in said
    assert {row["window"] for row in solution.history} > {"0", "1"}


# -- interrupted and resumed -----------------------------------------------------------------------------------------


def at_step(number: int, act: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    advance, count = Trainer.advance, [0]

    def acting(self: Trainer) -> Any:
        count[0] += 1
        if count[0] == number:
            for parameter in self.parameters:  # as in the middle of a step
                parameter.data.add_(act is interrupt)
            act()
        return advance(self)

    monkeypatch.setattr(Trainer, "advance", acting)


def interrupt() -> None:
    raise KeyboardInterrupt


def kill() -> None:
    raise Killed


def control_c() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def assert_same_run(whole: Path, resumed: Path) -> None:
    first, second = (file_formats.read_checkpoint(folder / "checkpoint.pt")["staged"] for folder in (whole, resumed))
    assert same(first["trainer"]["model"], second["trainer"]["model"])
    assert len(first["networks"]) == len(second["networks"])
    assert all(same(a, b) for a, b in zip(first["networks"], second["networks"], strict=True))
    tables = [file_formats.read_table(folder / "metrics.csv") for folder in (whole, resumed)]
    clocks = ("seconds", "cpu_seconds")
    rows = [[{k: v for k, v in row.items() if k not in clocks} for row in table] for table in tables]
    assert rows[0] == rows[1]


@pytest.mark.parametrize("step", [2, 13])  # of the one network, of a window
@pytest.mark.parametrize("act", [kill, control_c, interrupt])
def test_a_run_stopped_anywhere_resumes_bit_for_bit(
    act: Any, step: int, undisturbed: Undisturbed, lost: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, folder = undisturbed.solution, undisturbed.folder
    assert whole.result["epochs"] > 16
    with monkeypatch.context() as patch:
        at_step(step, act, patch)
        if act is kill:
            with pytest.raises(Killed):
                in_windows(tmp_path / "cut")
        else:
            cut = in_windows(tmp_path / "cut")
            assert cut.result["status"] == "interrupted"
            assert cut.result["epochs"] == (step if act is control_c else step - 1)
            assert np.isfinite(cut(np.linspace(0, 2, 9)[:, None])).all()
            assert_whole(cut.history, cut.result)
    again = in_windows(tmp_path / "cut", resume=True)
    assert again.result["status"] == "finished"
    assert_same_run(folder, tmp_path / "cut")
    t = np.linspace(0, 2, 9)[:, None]
    assert np.array_equal(whole(t), again(t))


def test_an_interrupt_in_a_step_returns_the_parameters_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    short = solve(line(), minutes=10, epochs=6, **TINY)
    at_step(7, interrupt, monkeypatch)
    cut = solve(line(), minutes=10, epochs=20, **TINY)
    x = np.linspace(0, 1, 9)[:, None]
    assert np.array_equal(short(x), cut(x))


def test_an_interrupted_solution_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    at_step(3, control_c, monkeypatch)
    solve(line(), minutes=10, epochs=20, out=tmp_path / "run", **{**TINY, "quiet": False})
    said = capfd.readouterr().err
    assert "Interrupted: this is the best network so far. Continue with the same call and resume=True." in said


def test_a_folder_with_a_run_is_refused_and_resumed(tmp_path: Path) -> None:
    first = solve(line(), minutes=10, epochs=5, out=tmp_path / "run", **TINY)
    with pytest.raises(InputError, match="resume=True"):
        solve(line(), minutes=10, epochs=5, out=tmp_path / "run", **TINY)
    again = solve(line(), minutes=10, epochs=5, out=tmp_path / "run", resume=True, **TINY)
    assert again.result["epochs"] == first.result["epochs"]
    assert again.estimate == first.estimate
    assert again.history == first.history
    with pytest.raises(InputError, match="started with windows = None, enough = 5e-06"):
        solve(line(), minutes=10, epochs=5, out=tmp_path / "run", resume=True, enough=0.1, **TINY)
    with pytest.raises(InputError, match="give the folder with out="):
        solve(line(), resume=True, **TINY)
    with pytest.raises(InputError, match="There is no run in"):
        solve(line(), out=tmp_path / "other", resume=True, **TINY)


# -- what is printed -------------------------------------------------------------------------------------------------


def test_quiet_prints_nothing(lost: None, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    in_windows()
    at_step(2, control_c, monkeypatch)
    solve(line(), minutes=10, epochs=6, **TINY)
    assert capfd.readouterr() == ("", "")


def test_sentences_are_whole_and_name_cpu_seconds(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    solve(line(), minutes=10, epochs=5, **{**TINY, "quiet": False, "estimate": False})
    said = capfd.readouterr().err
    assert re.search(r"^No error estimate, \d+ CPU seconds, 5 steps\.$", said, re.MULTILINE)
    assert re.search(r"^A line  \S+/600 CPU seconds  loss", said, re.MULTILINE)


def test_a_doubt_is_a_single_warning(lost: None) -> None:
    square = Interval(0, 1) * Interval(0, 1)
    doubtful = Problem(lambda u: u.t - u.xx, ("x", "t"), square, [Initial(u=0.0), Dirichlet(u=0.0, on="left")])
    assert doubtful.warnings
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        solve(doubtful, minutes=10, epochs=4, **TINY)
    assert len([w for w in caught if issubclass(w.category, ProblemWarning)]) == len(doubtful.warnings)


def test_the_announcement_is_a_call_with_the_settings_of_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    plate = Problem(lambda u: u.xx + u.yy, ("x", "y"), Box((0, 0), (1, 1)), [Dirichlet(u=0.0)])
    solution = solve(plate, minutes=10, epochs=1, **{**TINY, "quiet": False, "estimate": False})
    shown = re.search(r"solve\(problem, (.*)\)", capsys.readouterr().err)
    assert shown
    given = eval(f"dict({shown[1]})")
    assert given == {key: getattr(solution.settings, key) for key in given}
    assert given["width"] == 6
