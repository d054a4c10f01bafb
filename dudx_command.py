"""The `dudx` program: it can be stopped by one sentence also in its first seconds, when torch is being imported.

It stands outside the package because whatever is inside imports torch first.
"""

from __future__ import annotations

import os
import signal


def main() -> None:
    """Import the command line, and hand over to it."""

    def stop(number: int, frame: object) -> None:
        # At once: an exception may be lost or turned into another one in the middle of an import.
        os.write(2, b"dudx: stopped.\n")
        os._exit(130)

    importing = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # unless a shell lets it be ignored
    if importing:
        signal.signal(signal.SIGINT, stop)
    from dudx.lab.cli import main as program

    if importing:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    program()


if __name__ == "__main__":
    main()
