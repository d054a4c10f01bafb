"""Sweeps on a real Ray cluster of this machine's making; starting it takes most of the time."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from sweeps import assert_same, control_c_when, epoch

from dudx.errors import InputError
from dudx.lab import train
from dudx.lab.locks import locked
from dudx.lab.run.settings import make_settings
from dudx.lab.sweep import Run, grid, ray_workers, run_sweep
from dudx.lab.sweep.sweep_run import execute

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def marks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("marks")


@pytest.fixture(scope="module", autouse=True)
def cluster(marks: Path) -> Iterator[None]:
    patch = pytest.MonkeyPatch()
    patch.setenv("MISCHIEF", str(marks))
    patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    patch.setenv("RAY_AUTH_TOKEN", "of these tests")
    ray.init(
        address="local",
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="error",
        object_store_memory=80 * 2**20,
    )
    yield
    ray.shutdown()
    patch.undo()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    train(make_settings("burgers", "smoke", engine="sfd"), folder / "run")
    return folder / "run"


def test_the_numbers_are_those_of_one_machine_also_when_a_worker_is_killed(
    whole: Path, marks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    submitted = []
    original = ray_workers._submitted

    def noted(ray: Any, run: Run, folder: Path, *others: Any) -> Any:
        submitted.append((run.name, epoch(folder / run.name)))
        return original(ray, run, folder, *others)

    monkeypatch.setattr(ray_workers, "_submitted", noted)
    runs = grid("smoke", problem=["burgers", "mischief:killed"], engine=["sfd"], seed=[0])
    diverging = Run("diverging", make_settings("burgers", "smoke", weight_initial=1e39))
    outcomes = run_sweep([diverging, *runs], tmp_path, ray="auto")
    assert [o.status for o in outcomes] == ["diverged", "finished", "finished"]
    assert (marks / "killed").exists()
    assert submitted[-1] == (runs[1].name, 10)  # the checkpoint had come home before
    for run in runs:
        assert_same(tmp_path / run.name, whole)
    expected = {path.name for path in whole.iterdir()} | {"train.log"}
    assert {path.name for path in (tmp_path / runs[1].name).iterdir()} == expected


def test_a_run_that_keeps_dying_has_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_workers, "_execute", lambda *arguments: ("interrupted", None))
    (found,) = run_sweep(grid("smoke", problem=["burgers"]), tmp_path, ray="auto", retries=1)
    assert (found.status, found.reason) == ("failed", "Its process died, in attempt 2 of 2 by a polite signal.")


def test_control_c_loses_nothing(whole: Path, marks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_workers, "_SECONDS_BETWEEN_LOOKS", 0.02)
    (run,) = grid("smoke", problem=["mischief:slow"], engine=["sfd"], seed=[0])
    folder = tmp_path / run.name
    with control_c_when(lambda: epoch(folder) >= 0):
        (found,) = run_sweep([run], tmp_path, ray="auto")
    assert found.status == "interrupted"
    assert found.result is not None
    assert 0 < found.result["epochs"] < 20
    assert epoch(folder) == found.result["epochs"]
    (marks / "forgiven").touch()
    assert execute(run, folder).status == "finished"
    assert_same(folder, whole)


def test_a_run_that_no_node_can_hold_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="needs 3 CPUs and no node of the Ray cluster has more than 2"):
        run_sweep(grid("smoke", problem=["burgers"], threads=3), tmp_path, ray="auto")
    with pytest.raises(InputError, match=r"needs 0\.25 GPUs and no node"):
        run_sweep(grid("smoke", problem=["burgers"]), tmp_path, ray="auto", gpus_per_run=0.25)


@pytest.mark.parametrize("address", ["127.0.0.1:9", "ray://127.0.0.1:9"])
def test_a_cluster_that_does_not_answer_is_one_sentence_at_once(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    with pytest.raises(InputError, match=f"No Ray cluster answers at '{address}': ConnectionRefusedError"):
        run_sweep(grid("smoke", problem=["burgers"]), tmp_path, ray=address)


def test_without_ray_there_is_a_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r"Ray is not installed: pip install 'dudx\[cluster\]'"):
        run_sweep(grid("smoke", problem=["burgers"]), tmp_path, ray="auto")


STRANGER = "import sys, ray; ray.init(address=sys.argv[1], log_to_driver=False, logging_level='error'); print('let in')"


def test_who_does_not_know_the_token_is_refused(tmp_path: Path) -> None:
    """In processes of their own, as a process has one connection."""
    script = """
import os, subprocess, sys
from dudx.lab.run.settings import make_settings
from dudx.lab.sweep import Run, ray_workers
ray_workers._require_token()
import ray
run = Run("run", make_settings("burgers", "smoke", threads=1))
with ray_workers._connected(ray, "local", [run], 1, 0.0):
    address = ray.get_runtime_context().gcs_address
    for token in (os.environ["RAY_AUTH_TOKEN"], "a guess", None):
        known = {key: value for key, value in os.environ.items() if key not in ("RAY_AUTH_TOKEN", "RAY_AUTH_MODE")}
        known |= {"HOME": sys.argv[1], **({} if token is None else {"RAY_AUTH_TOKEN": token, "RAY_AUTH_MODE": "token"})}
        said = subprocess.run([sys.executable, "-c", sys.argv[2], address], env=known, capture_output=True, text=True)
        print("let in" in said.stdout)
"""
    known = {key: value for key, value in os.environ.items() if not key.startswith("RAY_AUTH")}
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path), STRANGER], env=known, capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == ["True", "False", "False"], done.stderr


def test_the_folder_of_a_killed_task_is_removed_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for name in ("dudx-task-dead", "dudx-task-alive", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "alive.lock").touch()
    with locked(tmp_path / "dudx-task-alive" / "alive.lock"):
        ray_workers._remove_abandoned()
        assert sorted(path.name for path in tmp_path.iterdir()) == ["dudx-task-alive", "other"]
