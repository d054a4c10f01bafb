"""Stop a run on Ctrl-C or SIGTERM without losing its work."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def stop_request(quiet: bool = False) -> Iterator[Callable[[], bool]]:
    """Let the first Ctrl-C or SIGTERM request a stop after the present epoch; the second one raises at once.

    Yields a function that returns True once a stop was requested. Outside of the main thread no handler is installed.
    """
    received: list[int] = []

    def request(number: int, frame: object) -> None:
        if received:
            raise KeyboardInterrupt
        received.append(number)
        if number == signal.SIGINT and not quiet:
            # os.write, since print may be what the signal interrupts.
            os.write(2, b"\ndudx: finishing this epoch and saving; Ctrl-C once more stops at once.\n")

    try:
        previous = {number: signal.signal(number, request) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # only the main thread may install handlers
        previous = {}
    try:
        yield lambda: bool(received)
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
