"""Run a sweep on a Slurm cluster: submitit submits a job per run, which trains in the sweep's folder.

The nodes must share that folder's file system. A job that dies, by its time limit or with its node, is submitted again
and resumes from its last checkpoint.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dudx.errors import InputError, first_line
from dudx.lab.sweep.sweep_run import Run, Work, attempt, write_death

#: The folder of submitit's pickles and the jobs' output.
JOBS = "jobs"
_SECONDS_BETWEEN_LOOKS = 1.0
#: Seconds that a run may take to finish its epoch when it is stopped.
_PATIENCE = 120.0


def work(runs: Sequence[Run], folder: Path, options: Mapping[str, Any], workers: int | None, retries: int) -> Work:
    """Train each run in a job; yield each run as it ends."""
    executor = _executor(folder / JOBS, options, max(run.settings.threads or 1 for run in runs))
    path = [os.path.abspath(entry) for entry in sys.path]
    waiting, flying, deaths = list(reversed(runs)), {}, Counter()
    try:
        while waiting or flying:
            while waiting and (workers is None or len(flying) < workers):
                run = waiting.pop()
                flying[executor.submit(_execute, run, (folder / run.name).resolve(), path)] = run
            for job in [job for job in flying if job.done()]:
                run = flying.pop(job)
                reason, death = _ended(job)
                deaths[run.name] += death is not None
                if death is not None and deaths[run.name] <= retries:
                    waiting.append(run)
                    continue
                if death is not None:
                    write_death(folder / run.name, 1 + retries, death)
                yield run, reason
            time.sleep(_SECONDS_BETWEEN_LOOKS if flying else 0)
    finally:
        for job in flying:
            job.cancel(check=False)  # politely: the run finishes its epoch and saves
        until = time.monotonic() + _PATIENCE
        while any(not job.done() for job in flying) and time.monotonic() < until:
            time.sleep(_SECONDS_BETWEEN_LOOKS)


def _ended(job: Any) -> tuple[str | None, str | None]:
    """Return the reason of a failure and how the job died; None for neither."""
    error = job.exception()
    if error is not None:
        return None, f"the state {job.state} ({first_line(error)})"
    status, reason = job.result()
    return reason, "a polite signal" if status == "interrupted" else None


def _execute(run: Run, folder: Path, path: list[str]) -> tuple[str, str | None]:
    """Train a run in a job."""
    sys.path.extend(entry for entry in path if entry not in sys.path)
    return attempt(run, folder)


def _executor(folder: Path, options: Mapping[str, Any], threads: int) -> Any:
    try:
        import submitit  # type: ignore[import-not-found]
    except ImportError as error:
        raise InputError("submitit is not installed: pip install 'dudx[cluster]', or leave out --slurm.") from error
    chosen = dict(options)
    cluster = chosen.pop("cluster", "slurm")
    try:
        executor = submitit.AutoExecutor(folder=str(folder), cluster=cluster)
        defaults = {"name": "dudx", "timeout_min": 24 * 60, "cpus_per_task": threads}
        executor.update_parameters(**(defaults | chosen))
    except (RuntimeError, ValueError, NameError, TypeError) as error:
        raise InputError(f"Jobs cannot be submitted to {cluster!r}: {first_line(error)}.") from error
    return executor


def parsed(text: str) -> dict[str, Any]:
    """Parse the options of --slurm: `timeout_min=60,slurm_partition=gpu`; `local` stands for this machine."""
    found: dict[str, Any] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = part.partition("=")
        if part == "local":
            found["cluster"] = "local"
        elif not equals or not name.isidentifier():
            raise InputError(
                f"--slurm reads local, or options such as timeout_min=60,slurm_partition=cpu; got {part!r}."
            )
        else:
            found[name] = value
            with contextlib.suppress(ValueError):
                found[name] = int(value)
    return found
