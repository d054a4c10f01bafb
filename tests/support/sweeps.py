"""Shared by the tests of sweeps: compare runs, and interrupt them."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from dudx.lab import file_formats

#: Entries that depend on the time or the name, not on the numbers.
OTHER = {"seconds", "cpu_seconds", "compile_seconds", "problem"}


def assert_same(a: Path, b: Path) -> None:
    """Two runs found the same, bit for bit."""
    ours, theirs = (file_formats.read_checkpoint(folder / "checkpoint.pt")["model"] for folder in (a, b))
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[key], theirs[key]) for key in ours)
    assert _numbers(a) == _numbers(b)


def _numbers(folder: Path) -> list[dict[str, Any]]:
    found = [file_formats.read_json(folder / "result.json"), *file_formats.read_table(folder / "metrics.csv")]
    return [{key: value for key, value in row.items() if key not in OTHER} for row in found]


def epoch(folder: Path) -> int:
    """The epoch of a run's checkpoint, -1 before the first."""
    path = folder / "checkpoint.pt"
    return file_formats.read_checkpoint(path)["loop"]["epoch"] if path.exists() else -1


def wait_until(condition: Callable[[], bool], what: str, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"it never came to pass that {what}"
        time.sleep(0.05)  # reading a checkpoint takes time from the run that is waited for


@contextmanager
def control_c_when(condition: Callable[[], bool]) -> Iterator[None]:
    """Interrupt the main thread once the condition holds."""
    over = threading.Event()

    def watch() -> None:
        while not condition():
            if over.wait(0.02):
                return
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
