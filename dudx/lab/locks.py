"""A folder is worked in by one process at a time; the lock of a process that died frees itself."""

from __future__ import annotations

import fcntl
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from dudx.errors import InputError
from dudx.lab.storage import StorageError

_SECONDS_BETWEEN_LOOKS = 0.1


class LockedError(InputError):
    """Another process works in the folder."""


@contextmanager
def locked(path: Path, patience: float = 0.0) -> Iterator[None]:
    """Hold the lock file `path`, which names the process that holds it; wait for it `patience` seconds at most.

    The system drops the lock with the process, so a file that was left behind by `kill -9` does not count.
    """
    deadline = time.monotonic() + patience
    while (file := _acquired(path)) is None:
        if time.monotonic() >= deadline:
            raise LockedError(f"{_holder(path)} works in {str(path.parent)!r} already; wait for it or stop it.")
        time.sleep(_SECONDS_BETWEEN_LOOKS)
    with file:
        file.truncate(0)
        file.write(f"{os.getpid()} {socket.gethostname()}\n")
        file.flush()
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def _acquired(path: Path) -> IO[str] | None:
    try:
        file = path.open("a", encoding="utf-8")
    except OSError as error:
        raise StorageError(f"Cannot write {str(path)!r}: {error.strerror or error}.") from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Who held it may have removed the file just before; then this one is in no folder and locks nothing.
        if os.fstat(file.fileno()).st_ino == path.stat().st_ino:
            return file
    except (BlockingIOError, FileNotFoundError):
        pass
    except OSError as error:
        file.close()
        raise StorageError(f"Cannot lock {str(path)!r}: {error.strerror or error}.") from error
    file.close()
    return None


def _holder(path: Path) -> str:
    try:
        pid, host = path.read_text(encoding="utf-8").split()
    except (OSError, ValueError):  # released or just being written
        return "Another process"
    return f"Process {pid} on {host}"
