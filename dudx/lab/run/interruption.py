"""Stopping a run without losing what it has done."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def stop_request() -> Iterator[Callable[[], bool]]:
    """Let Ctrl-C or a polite kill finish the epoch first; a second Ctrl-C stops at once."""
    asked: list[int] = []

    def remember(number: int, frame: object) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)
        if number == signal.SIGINT:
            # Not by print, which may be at work itself when the signal comes.
            os.write(2, b"\ndudx: finishing this epoch and saving; Ctrl-C once more stops at once.\n")

    try:
        previous = {number: signal.signal(number, remember) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not in the main thread, which alone may set handlers
        previous = {}
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
