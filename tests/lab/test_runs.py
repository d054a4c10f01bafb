from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

import pytest
from sweeps import assert_same

from dudx.errors import InputError
from dudx.lab import file_formats, train
from dudx.lab.locks import LockedError, locked
from dudx.lab.run import training
from dudx.lab.run.folder import LOCK, begin_run, stored_settings
from dudx.lab.run.settings import make_settings, to_toml
from dudx.lab.run.trainer import Trainer
from dudx.lab.sweep import grid, run_sweep
from dudx.lab.sweep.sweep_run import Run, execute, outcome


def test_the_state_of_a_folder(tmp_path: Path) -> None:
    run = Run("run", make_settings("burgers", "smoke", threads=1))
    folder = tmp_path / "run"
    assert (outcome(run, folder).status, outcome(run, folder).reason) == ("interrupted", "not begun")
    folder.mkdir()
    file_formats.write_text(folder / "config.toml", to_toml(run.settings))  # and killed before the first checkpoint
    (folder / ".checkpoint.pt.4711").write_bytes(b"half a file")
    assert (outcome(run, folder).status, outcome(run, folder).reason) == ("interrupted", "stopped")
    assert execute(run, folder).status == "finished"
    assert {path.name for path in folder.glob(".*")} | {path.name for path in folder.glob("*.lock")} == set()
    assert "epoch 20/20" in (folder / "train.log").read_text()
    train(run.settings, tmp_path / "alone")
    assert_same(folder, tmp_path / "alone")
    with pytest.raises(InputError, match=r"has batch = 64, not 65; choose another folder, or delete this one"):
        outcome(Run("run", run.settings.model_copy(update={"batch": 65})), folder)
    (folder / "result.json").unlink()
    assert outcome(run, folder).status == "interrupted"
    assert execute(run, folder).status == "finished"
    assert_same(folder, tmp_path / "alone")


def test_a_lock_names_its_holder_and_one_left_behind_does_not_count(tmp_path: Path) -> None:
    path = tmp_path / "sweep.lock"
    path.write_text("4711 elsewhere\n")  # as a killed process leaves it
    with locked(path):
        assert path.read_text().split()[0] == str(os.getpid())
        with pytest.raises(LockedError, match=f"Process {os.getpid()} on .* works in .* already"), locked(path):
            pytest.fail("it was locked")
        with pytest.raises(LockedError):
            run_sweep(grid("smoke", problem=["burgers"]), tmp_path)
    assert not path.exists()


def files_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_of_two_that_begin_in_one_folder_the_second_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one gets the lock while the second is still looking at its settings."""
    folder = tmp_path / "run"
    first, second = (make_settings("burgers", "smoke", seed=seed, threads=1) for seed in (1, 2))
    for still_at_work in (True, False):
        with contextlib.ExitStack() as stack:

            def made(*arguments: Any, stack: contextlib.ExitStack = stack, busy: bool = still_at_work) -> Trainer:
                trainer = Trainer(*arguments)
                monkeypatch.undo()
                if busy:
                    folder.mkdir()
                    stack.enter_context(locked(folder / LOCK))
                    begin_run(folder, first)
                else:
                    train(first, folder)
                return trainer

            monkeypatch.setattr(training, "Trainer", made)
            with pytest.raises(InputError, match="already"):
                train(second, folder)
            assert stored_settings(folder) == first
            if not still_at_work:
                before = files_in(folder)
                with pytest.raises(InputError, match="already"):
                    train(second, folder)
                assert files_in(folder) == before


def test_what_a_killed_process_was_writing_is_removed_at_the_next_start(tmp_path: Path) -> None:
    settings = make_settings("burgers", "smoke", epochs=2)
    train(settings, tmp_path / "run")
    (tmp_path / "run" / ".checkpoint.pt.4711").write_bytes(b"half of it")
    train(settings, tmp_path / "run", resume=True)
    assert not list((tmp_path / "run").glob(".*"))


def test_a_run_that_fails_in_its_first_step_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(self: Trainer) -> None:
        raise ValueError("the sky fell")

    monkeypatch.setattr(Trainer, "_epoch", failing)
    with pytest.raises(ValueError, match="sky"):
        train(make_settings("burgers", "smoke"), tmp_path / "a" / "run")
    assert not list(tmp_path.iterdir())


def test_a_run_of_an_earlier_version_is_read_if_its_retired_settings_had_the_only_value_left(tmp_path: Path) -> None:
    settings = make_settings("burgers", "smoke", threads=1)
    file_formats.write_text(
        tmp_path / "config.toml", to_toml(settings) + "members = 1\ntensorboard = false\nloggers = ''\n"
    )
    assert stored_settings(tmp_path) == settings
    file_formats.write_text(tmp_path / "config.toml", to_toml(settings) + "members = 8\n")
    with pytest.raises(InputError, match="members = 8 is not right: there is no such setting"):
        stored_settings(tmp_path)
