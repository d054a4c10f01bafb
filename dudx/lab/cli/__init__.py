"""The command line: every error is one sentence and a nonzero exit code."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from pathlib import Path
from typing import NoReturn

import typer

import dudx
from dudx.errors import DudxError, first_line
from dudx.lab.cli import (  # each adds its commands
    lists,
    run_commands,
    sweep_commands,
)
from dudx.lab.cli.program import StoppedError, app

__all__ = ["app", "lists", "main", "run_commands", "run_program", "sweep_commands"]

#: Typer brings its own copy of Click or uses the installed one; this is the base of its errors in either.
_UsageError: type[Exception] = typer.BadParameter.__mro__[1]


def main() -> None:
    """Run the `dudx` program."""
    run_program(app)


def run_program(program: typer.Typer) -> NoReturn:
    """Run a command line and exit with its code; turn every error into one sentence."""
    try:
        code = program(standalone_mode=False)
    except (DudxError, OSError) as error:
        _stop(_one_line(str(error)), 1)
    except (StoppedError, KeyboardInterrupt, typer.Abort):
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # print the sentence once, however often Ctrl-C is pressed
        _stop("stopped.", 130)
    except _UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            print(error)
            sys.exit(2)
        _stop(_one_line(error.format_message()) or "unknown command; see dudx --help.", 2)  # type: ignore[attr-defined]
    except MemoryError as error:
        _stop(f"there is not enough memory ({first_line(error)}); try smaller numbers.", 1)
    except Exception as error:
        if os.environ.get("DUDX_TRACEBACK"):
            raise
        _stop(_unexpected(error), 1)
    sys.exit(code)


def _stop(sentence: str, code: int) -> NoReturn:
    print(f"dudx: {sentence}", file=sys.stderr)
    sys.exit(code)


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _unexpected(error: Exception) -> str:
    """Describe an unexpected error: its type, its place, and how to see the traceback."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = Path(dudx.__file__).parent
    library = [Path(entry) for entry in sys.path if entry.endswith("site-packages")]
    own = [f for f in frames if not any(place in Path(f.filename).parents for place in (ours, *library))]
    at = (own[1:] or frames)[-1]  # the first one is the program's own
    what = _one_line(f"{type(error).__name__}: {first_line(error)}")
    return f"{what} ({Path(at.filename).name}, line {at.lineno}); set DUDX_TRACEBACK=1 for the traceback."
