"""Show how a run goes: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import Protocol, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

_SECONDS_BETWEEN_LINES = 10.0


class Display(Protocol):
    """What the trainer tells the outside while it works."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...

    def update(self, epoch: int, facts: Mapping[str, str]) -> None: ...


def display(title: str, epochs: int, start: int = 0) -> Display:
    """A bar if someone watches, lines otherwise."""
    return Bar(title, epochs, start) if sys.stderr.isatty() else Lines(title, epochs, start)


class Bar:
    """A progress bar with the losses, the error, the step and the time left."""

    def __init__(self, title: str, epochs: int, start: int):
        self.progress = Progress(
            TextColumn("{task.description}", style="bold", markup=False),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[facts]}", markup=False),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            refresh_per_second=4,
        )
        self.task = self.progress.add_task(title, total=epochs, completed=start, facts="")

    def __enter__(self) -> Self:
        self.progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.progress.stop()

    def update(self, epoch: int, facts: Mapping[str, str]) -> None:
        self.progress.update(self.task, completed=epoch, facts="  ".join(f"{k} {v}" for k, v in facts.items()))


class Lines:
    """A plain line every few seconds and at the end."""

    def __init__(self, title: str, epochs: int, start: int):
        self.title, self.epochs, self.first = title, epochs, start
        self.began = self.spoke = time.monotonic()
        self.counting = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def update(self, epoch: int, facts: Mapping[str, str]) -> None:
        now = time.monotonic()
        if not self.counting:  # from the first epoch on, which may have waited for the compiler
            self.counting, self.began, self.first = True, now, epoch
        if now - self.spoke < _SECONDS_BETWEEN_LINES and epoch < self.epochs:
            return
        self.spoke = now
        seconds = (now - self.began) / max(1, epoch - self.first) * (self.epochs - epoch)
        left = f"  left {seconds:.0f} s" if epoch > self.first or epoch == self.epochs else ""
        told = "  ".join(f"{key} {value}" for key, value in facts.items())
        print(f"{self.title}  epoch {epoch}/{self.epochs}  {told}{left}", file=sys.stderr, flush=True)
