"""Run a sweep on a Ray cluster: a task per run, with its own cores and share of a GPU.

A task trains in a temporary folder of its node and posts its files after each checkpoint to a mailbox, which the driver
empties into the sweep's folder. Nodes therefore need no common file system, and a run whose node dies resumes on
another node from its last checkpoint.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import socket
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dudx.errors import DudxError, InputError
from dudx.lab.atomic_files import StorageError
from dudx.lab.locks import LockedError, locked
from dudx.lab.run.folder import packed, unpack
from dudx.lab.sweep.sweep_run import Run, Work, attempt, sentence, write_death

Files = dict[str, bytes]

#: Prefix of a task's folder, and the file in it that stays locked while the task is alive.
_PREFIX, _ALIVE = "dudx-task-", "alive.lock"

_SECONDS_BETWEEN_LOOKS = 1.0
_SECONDS_TO_ANSWER = 5.0
#: Seconds that a run may take to finish its epoch when it is stopped.
_PATIENCE = 120.0


def work(
    runs: Sequence[Run], folder: Path, address: str, workers: int | None, gpus_per_run: float, retries: int
) -> Work:
    """Train each run in a task on a cluster; yield each run as it ends."""
    if address == "local":
        _require_token()
    ray = _ray()
    with _connected(ray, address, runs, workers, gpus_per_run):
        mailbox = _mailbox(ray)
        waiting, flying, deaths = list(reversed(runs)), {}, Counter()
        try:
            while waiting or flying:
                while waiting and (workers is None or len(flying) < workers):
                    run = waiting.pop()
                    flying[_submitted(ray, run, folder, mailbox, gpus_per_run)] = run
                ready, _ = ray.wait(list(flying), timeout=_SECONDS_BETWEEN_LOOKS)
                _empty(ray, mailbox, folder)
                for task in ready:
                    run = flying.pop(task)
                    reason, death = _ended(ray, task)
                    deaths[run.name] += death is not None
                    if death is not None and deaths[run.name] <= retries:
                        waiting.append(run)
                        continue
                    if death is not None:
                        write_death(folder / run.name, 1 + retries, death)
                    yield run, reason
        finally:
            for task in flying:
                ray.cancel(task, recursive=False)  # Ctrl-C for the task: it finishes the epoch and saves
            if flying:
                ray.wait(list(flying), num_returns=len(flying), timeout=_PATIENCE)
                _empty(ray, mailbox, folder)


def _ended(ray: Any, task: Any) -> tuple[str | None, str | None]:
    """Return the reason of a failure and how the task's process died; None for neither."""
    try:
        status, reason = ray.get(task)
    except ray.exceptions.RayTaskError as error:
        raise InputError(
            f"A node of the Ray cluster cannot train a run ({_last_line(error)}); does it have the same version "
            "of dudx?"
        ) from error
    except ray.exceptions.RayError as error:  # the process or its node is gone
        return None, type(error).__name__
    return reason, "a polite signal" if status == "interrupted" else None


def _mailbox(ray: Any) -> Any:
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    class Mailbox:  # inside a function: Ray then pickles it, and its process does not import torch
        """Keep the latest files of each run until they are fetched."""

        def __init__(self) -> None:
            self.files: dict[str, Files] = {}

        def post(self, name: str, files: Files) -> None:
            self.files[name] = files

        def empty(self) -> dict[str, Files]:
            files, self.files = self.files, {}
            return files

    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
    return ray.remote(num_cpus=0, scheduling_strategy=here)(Mailbox).remote()


def _empty(ray: Any, mailbox: Any, folder: Path) -> None:
    try:
        posted = ray.get(mailbox.empty.remote())
    except ray.exceptions.RayError as error:
        raise DudxError(
            f"The Ray cluster does not answer any more ({type(error).__name__}); start the sweep again to resume it."
        ) from error
    for name, files in posted.items():
        unpack(files, folder / name)


def _submitted(ray: Any, run: Run, folder: Path, mailbox: Any, gpus_per_run: float) -> Any:
    begun = packed(folder / run.name) if (folder / run.name).exists() else {}
    task = ray.remote(max_calls=1 if run.own_code else 0)(_execute).options(
        num_cpus=run.settings.threads or 1,
        num_gpus=gpus_per_run,
        max_retries=0,  # the driver holds a later checkpoint than the one it sent
    )
    return task.remote(run, begun, mailbox, [os.path.abspath(entry) for entry in sys.path])


def _execute(run: Run, files: Files, mailbox: Any, path: list[str]) -> tuple[str, str | None]:
    """Train a run in a task, in a folder that travels."""
    ray = _ray()
    sys.path.extend(entry for entry in path if entry not in sys.path)
    _remove_abandoned()
    with tempfile.TemporaryDirectory(prefix=_PREFIX) as name, locked(Path(name) / _ALIVE):
        folder = Path(name) / "run"
        unpack(files, folder)

        def post() -> None:
            ray.get(mailbox.post.remote(run.name, packed(folder)))

        ended = attempt(run, folder, post)
        if ended[1] is None:
            post()
    return ended


def _remove_abandoned() -> None:
    """Remove the folders of tasks that were killed on this node."""
    for place in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        if not (place / _ALIVE).exists():  # being created or removed, or not ours
            continue
        with contextlib.suppress(LockedError, StorageError):
            with locked(place / _ALIVE):
                pass
            shutil.rmtree(place, ignore_errors=True)


def _require_token() -> None:
    """Make a cluster that is started here accept only this program, by a token.

    Ray listens on all interfaces, whatever address it is given, and runs the code it is sent. It reads the mode when it
    is imported; if that has happened before, it asks for a token by itself.
    """
    if "ray" not in sys.modules:
        os.environ.setdefault("RAY_AUTH_MODE", "token")
    os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))


def _last_line(error: Exception) -> str:
    """Return the last line of a remote traceback, which states the error."""
    return (str(error).strip() or repr(error)).splitlines()[-1]


def _ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise InputError("Ray is not installed: pip install 'dudx[cluster]', or leave out --ray.") from error
    return ray


@contextmanager
def _connected(ray: Any, address: str, runs: Sequence[Run], workers: int | None, gpus_per_run: float) -> Iterator[None]:
    """Connect to the cluster unless the program is connected; close only a connection opened here."""
    threads = max(run.settings.threads or 1 for run in runs)
    if ray.is_initialized():
        _refuse_too_small(ray, threads, gpus_per_run)
        yield
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no usage reports unless the user asks for them
    options: dict[str, Any] = {"address": address, "log_to_driver": False, "logging_level": "error"}
    if address == "local":
        options |= {"num_cpus": workers * threads if workers else None, "include_dashboard": False}
    _require_answer(address)
    try:
        ray.init(**options)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise InputError(f"No Ray cluster answers at {address!r}: {sentence(error).rstrip('.')}.") from error
    try:
        _refuse_too_small(ray, threads, gpus_per_run)
        yield
    finally:
        ray.shutdown()


def _require_answer(address: str) -> None:
    """Raise if no machine answers at an address; Ray would try for minutes."""
    place = re.fullmatch(r"(?:ray://)?([^/:]+):(\d+)", address)
    if place is None:
        return
    try:
        socket.create_connection((place[1], int(place[2])), timeout=_SECONDS_TO_ANSWER).close()
    except (OSError, OverflowError) as error:
        raise InputError(f"No Ray cluster answers at {address!r}: {sentence(error)}.") from error


def _refuse_too_small(ray: Any, threads: int, gpus_per_run: float) -> None:
    """Raise if no node can hold a task, which would wait for ever."""
    for kind, needed in (("CPU", threads), ("GPU", gpus_per_run)):
        most = max((node["Resources"].get(kind, 0) for node in ray.nodes() if node["Alive"]), default=0)
        if most < needed:
            raise InputError(f"A run needs {needed:g} {kind}s and no node of the Ray cluster has more than {most:g}.")
