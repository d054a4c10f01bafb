"""A folder is worked in by one process at a time; the lock of a process that died frees itself."""

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
    """Another process works in the folder."""


@contextmanager
def locked(path: Path, patience: float = 0.0) -> Iterator[None]:
    """Hold the lock file `path`, which names the process that holds it; wait for it `patience` seconds at most.

    The system drops the lock with the process, so a file that was left behind by `kill -9` does not count.
    """
    lock = FileLock(path, timeout=patience, poll_interval=0.1)
    try:
        lock.acquire()
    except Timeout as error:
        raise LockedError(f"{_holder(path)} works in {str(path.parent)!r} already; wait for it or stop it.") from error
    except (OSError, ValueError) as error:
        raise StorageError(f"Cannot lock {str(path)!r}: {getattr(error, 'strerror', None) or error}.") from error
    try:
        with contextlib.suppress(OSError):  # Windows lets nobody write to it; the name is only told to people
            path.write_text(f"{os.getpid()} {socket.gethostname()}\n", encoding="utf-8")
        yield
    finally:
        # Before it is let go: afterwards it might be another's. Who waits for it notices that it is gone.
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
        lock.release()


def _holder(path: Path) -> str:
    try:
        pid, host = path.read_text(encoding="utf-8").split()
    except (OSError, ValueError):  # released or just being written
        return "Another process"
    return f"Process {pid} on {host}"
