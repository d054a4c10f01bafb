"""Show how a run goes: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import Protocol, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

_SECONDS_BETWEEN_LINES = 10.0


class Display(Protocol):
    """What the trainer tells the outside while it works."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...

    def update(self, done: float, facts: Mapping[str, str], over: bool) -> None: ...


def display(title: str, unit: str, total: float, start: float = 0) -> Display:
    """A bar if someone watches, lines otherwise; progress is counted in units, epochs or seconds."""
    return Bar(title, unit, total, start) if sys.stderr.isatty() else Lines(title, unit, total, start)


class Bar:
    """A progress bar with the losses, the error, the step and the time left."""

    def __init__(self, title: str, unit: str, total: float, start: float):
        self.progress = Progress(
            TextColumn("{task.description}", style="bold", markup=False),
            BarColumn(bar_width=24),
            TextColumn("{task.completed:.0f}/{task.total:.0f}" + (" s" if unit == "second" else "")),
            TextColumn("{task.fields[facts]}", markup=False),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            refresh_per_second=4,
        )
        self.task = self.progress.add_task(title, total=total, completed=int(start), facts="")

    def __enter__(self) -> Self:
        self.progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.progress.stop()

    def update(self, done: float, facts: Mapping[str, str], over: bool) -> None:
        self.progress.update(self.task, completed=done, facts="  ".join(f"{k} {v}" for k, v in facts.items()))


class Lines:
    """A plain line every few seconds and at the end."""

    def __init__(self, title: str, unit: str, total: float, start: float):
        self.title, self.unit, self.total, self.first = title, unit, total, start
        self.began = self.spoke = time.monotonic()
        self.counting = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def update(self, done: float, facts: Mapping[str, str], over: bool) -> None:
        now = time.monotonic()
        if not self.counting:  # from the first epoch on, which may have waited for the compiler
            self.counting, self.began, self.first = True, now, done
        if now - self.spoke < _SECONDS_BETWEEN_LINES and not over:
            return
        self.spoke = now
        seconds = max(0.0, (now - self.began) / max(1e-9, done - self.first) * (self.total - done))
        left = f"  left {0.0 if over else seconds:.0f} s" if done > self.first or over else ""
        told = "  ".join(f"{key} {value}" for key, value in facts.items())
        place = f"{self.unit} {done:.0f}/{self.total:.0f}"
        print(f"{self.title}  {place}  {told}{left}", file=sys.stderr, flush=True)
