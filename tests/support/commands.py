"""Shared by the tests of the command line."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable

#: An exit code, and what was written to standard output and to standard error.
Said = tuple[int, str, str]


def call(main: Callable[[], None]) -> tuple[object, str]:
    """The exit code of the program, and what it said on the way, but for how its trainings went."""
    said = io.StringIO()
    code: object = 0
    with contextlib.redirect_stderr(said):
        try:
            main()
        except SystemExit as stop:
            code = stop.code
        except Exception as error:
            return None, f"unexpected {error!r}"
    lines = [line for line in said.getvalue().splitlines() if " epoch " not in line]
    return code, "\n".join(lines)
