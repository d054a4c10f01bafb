"""Sweeps by jobs: submitted by submitit, here to its executor for this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from dudx.errors import InputError
from dudx.lab.sweep import grid, run_sweep
from dudx.lab.sweep.slurm_workers import parsed
from dudx.lab.sweep.sweep_run import execute

TINY = {"width": 4, "depth": 1, "batch": 16, "boundary_batch": 8, "epochs": 3, "optimizer": "adam", "engine": "taylor"}


def test_what_is_asked_of_slurm() -> None:
    assert parsed("timeout_min=60, slurm_partition=cpu") == {"timeout_min": 60, "slurm_partition": "cpu"}
    assert parsed("local") == {"cluster": "local"}
    with pytest.raises(InputError, match="timeout_min=60"):
        parsed("gpu")


@pytest.mark.slow
def test_jobs_end_with_the_numbers_of_this_machine(tmp_path: Path) -> None:
    pytest.importorskip("submitit", reason="pip install 'dudx[cluster]'")
    runs = grid("smoke", problem=["poisson"], seed=[0, 1], **TINY)
    here = [execute(run, tmp_path / "here" / run.name) for run in runs]
    jobs = run_sweep(runs, tmp_path / "jobs", slurm={"cluster": "local", "timeout_min": 10})
    assert [outcome.status for outcome in jobs] == ["finished", "finished"]
    assert [o.result["loss"] for o in jobs if o.result] == [o.result["loss"] for o in here if o.result]


@pytest.mark.slow
def test_an_option_that_slurm_does_not_know_is_a_sentence(tmp_path: Path) -> None:
    pytest.importorskip("submitit", reason="pip install 'dudx[cluster]'")
    runs = grid("smoke", problem=["poisson"], seed=[0], **TINY)
    with pytest.raises(InputError, match="cannot be submitted"):
        run_sweep(runs, tmp_path / "jobs", slurm={"cluster": "local", "colour": "blue"})
