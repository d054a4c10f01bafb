"""The command line: every error is one sentence and an exit code that is not zero."""

from __future__ import annotations

import sys

from dudx.errors import DudxError
from dudx.lab.cli import doctor, lists, paper, runs, sweeps  # each adds its commands
from dudx.lab.cli.program import app

__all__ = ["app", "doctor", "lists", "main", "paper", "runs", "sweeps"]


def main() -> None:
    """The entry point: errors raised on purpose, and those of the file system, become one sentence."""
    try:
        app()
    except (DudxError, OSError) as error:
        print(f"dudx: {error}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        print("dudx: stopped.", file=sys.stderr)
        sys.exit(130)
