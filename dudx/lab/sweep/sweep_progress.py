"""Show the progress of a sweep: a line per finished run, above a progress bar on a terminal."""

from __future__ import annotations

import sys
import time
from typing import Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from dudx.errors import percent
from dudx.lab.sweep.sweep_run import Outcome


class SweepProgress:
    """Count the runs; the time left is estimated from those that ended since the sweep was started."""

    def __init__(self, total: int, before: int = 0):
        self.total, self.before, self.ended = total, before, 0
        self.began = time.monotonic()
        self.bar: Progress | None = None
        if sys.stderr.isatty():
            self.bar = Progress(
                TextColumn("[bold]sweep"),
                BarColumn(bar_width=24),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TextColumn("{task.fields[left]}"),
                console=Console(stderr=True),
                refresh_per_second=4,
            )
            self.task = self.bar.add_task("sweep", total=total, completed=before, left="")

    def __enter__(self) -> Self:
        if self.bar is not None:
            self.bar.start()
        elif self.before:
            print(f"{self.before}/{self.total}  done before", file=sys.stderr, flush=True)
        return self

    def __exit__(self, *error: object) -> None:
        if self.bar is not None:
            self.bar.stop()

    def update(self, outcome: Outcome) -> None:
        """Report the outcome of one more run."""
        self.ended += 1
        count = self.before + self.ended
        seconds = (time.monotonic() - self.began) / self.ended * (self.total - count)
        left = f"left {seconds:.0f} s" if seconds < 600 else f"left {seconds / 60:.0f} min"
        line = f"{outcome.name}  {_described(outcome)}"
        if self.bar is None:
            print(f"{count}/{self.total}  {line}  {left}", file=sys.stderr, flush=True)
        else:
            self.bar.console.print(escape(line), highlight=False)
            self.bar.update(self.task, completed=count, left=left)


def _described(outcome: Outcome) -> str:
    if outcome.reason is not None:
        return f"{outcome.status}: {outcome.reason}"
    error = (outcome.result or {}).get("l2_relative")
    return outcome.status if error is None else f"{outcome.status}  L2 {percent(error)}"
