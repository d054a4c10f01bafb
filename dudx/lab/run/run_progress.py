"""Progress of a run: a bar on a terminal, a line every few seconds elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Mapping
from typing import Protocol, Self

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, Task, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Column
from rich.text import Text

_SECONDS_BETWEEN_LINES = 10.0


class Display(Protocol):
    """Shows how far a run is."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...

    def update(self, done: float, facts: Mapping[str, str], over: bool) -> None: ...


def display(title: str, unit: str, total: float, start: float = 0, quiet: bool = False) -> Display:
    """Return a bar on a terminal, lines elsewhere, or nothing if quiet; progress is counted in units."""
    kind = Nothing if quiet else Bar if sys.stderr.isatty() else Lines
    return kind(title, unit, total, start)


class Nothing:
    """Show nothing."""

    def __init__(self, title: str, unit: str, total: float, start: float):
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def update(self, done: float, facts: Mapping[str, str], over: bool) -> None:
        pass


class Bar:
    """A line with title, bar, amount done and time left; below it a line with losses, error and step."""

    def __init__(self, title: str, unit: str, total: float, start: float, console: Console | None = None):
        self.progress = _WithFacts(
            TextColumn("{task.description}", style="bold", markup=False, table_column=_shortened(24)),
            BarColumn(bar_width=16),
            TextColumn("{task.fields[amount]}", table_column=Column(no_wrap=True)),
            TimeElapsedColumn(),
            TextColumn("left", table_column=Column(no_wrap=True)),
            TimeRemainingColumn(),
            console=console or Console(stderr=True),
            refresh_per_second=4,
        )
        self.unit, self.total = unit, total
        self.task = self.progress.add_task(title, total=total, amount="", facts="")
        self.update(start, {}, False)

    def __enter__(self) -> Self:
        self.progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.progress.stop()

    def update(self, done: float, facts: Mapping[str, str], over: bool) -> None:
        amount = _amount(self.unit, done, self.total)
        self.progress.update(self.task, completed=done, amount=amount, facts=_joined(facts))


class _WithFacts(Progress):
    """A progress bar with the facts of its task on a line of their own."""

    def get_renderables(self) -> Iterable[RenderableType]:
        yield self.make_tasks_table(self.tasks)
        yield from (_line(task) for task in self.tasks if task.fields["facts"])


def _line(task: Task) -> Text:
    return Text(f"  {task.fields['facts']}", no_wrap=True, overflow="ellipsis")


def _shortened(width: int) -> Column:
    return Column(no_wrap=True, overflow="ellipsis", max_width=width)


class Lines:
    """A plain line every few seconds and at the end."""

    def __init__(self, title: str, unit: str, total: float, start: float):
        self.title, self.unit, self.total, self.first = title, unit, total, start
        self.began = self.printed = time.monotonic()
        self.counting = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def update(self, done: float, facts: Mapping[str, str], over: bool) -> None:
        now = time.monotonic()
        if not self.counting:  # from the first epoch on, which may have waited for the compiler
            self.counting, self.began, self.first = True, now, done
        if now - self.printed < _SECONDS_BETWEEN_LINES and not over:
            return
        self.printed = now
        seconds = max(0.0, (now - self.began) / max(1e-9, done - self.first) * (self.total - done))
        left = f"  left {0.0 if over else seconds:.0f} s" if done > self.first or over else ""
        amount = _amount(self.unit, done, self.total)
        print(f"{self.title}  {amount}  {_joined(facts)}{left}", file=sys.stderr, flush=True)


def _amount(unit: str, done: float, total: float) -> str:
    """Return the amount done and the total with their unit."""
    if unit == "epoch":
        return f"epoch {done:.0f}/{total:.0f}"
    digits = 0 if total >= 10 else 1 if total >= 1 else 2
    return f"{done:.{digits}f}/{total:.{digits}f} {unit}s"


def _joined(facts: Mapping[str, str]) -> str:
    return "  ".join(f"{key} {value}" for key, value in facts.items())
