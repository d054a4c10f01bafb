"""Lock a folder for one process at a time; the lock of a process that died is released by the system."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from dudx.errors import InputError
from dudx.lab.atomic_files import StorageError


class LockedError(InputError):
    """Another process is working in the folder."""


@contextmanager
def locked(path: Path, patience: float = 0.0) -> Iterator[None]:
    """Hold the lock file `path`, waiting for it at most `patience` seconds; the file names its holder.

    The system releases the lock with the process, so a file left behind by `kill -9` locks nothing.
    """
    lock = FileLock(path, timeout=patience, poll_interval=0.1)
    try:
        lock.acquire()
    except Timeout as error:
        raise LockedError(f"{_holder(path)} works in {str(path.parent)!r} already; wait for it or stop it.") from error
    except (OSError, ValueError) as error:
        raise StorageError(f"Cannot lock {str(path)!r}: {getattr(error, 'strerror', None) or error}.") from error
    try:
        with contextlib.suppress(OSError):  # Windows forbids writing to it; the name is for messages only
            path.write_text(f"{os.getpid()} {socket.gethostname()}\n", encoding="utf-8")
        yield
    finally:
        # Before the release, after which the file may be another process's. A waiting process notices the removal.
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
        lock.release()


def _holder(path: Path) -> str:
    try:
        pid, host = path.read_text(encoding="utf-8").split()
    except (OSError, ValueError):  # released or just being written
        return "Another process"
    return f"Process {pid} on {host}"
