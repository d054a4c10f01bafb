"""Tables as data: cells with emphasis, written as Markdown or CSV, and how numbers read in them."""

from __future__ import annotations

import csv
import io
import math
import re
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

#: A relative error above which a network has learned next to nothing of the solution.
COLLAPSED = 0.5


@dataclass(frozen=True)
class Cell:
    """A text, emphasised or not."""

    text: str
    bold: bool = False

    def __str__(self) -> str:
        return f"**{self.text}**" if self.bold else self.text


@dataclass(frozen=True)
class Table:
    """A table with its caption and notes."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell | str]]
    notes: Sequence[str] = field(default=())
    #: Distinguishes the tables of one experiment; a main one has none.
    name: str = ""
    #: How many columns at the left are words; numbers follow.
    words: int = 1

    @property
    def cells(self) -> list[list[Cell]]:
        """All cells, emphasised or not."""
        return [[cell if isinstance(cell, Cell) else Cell(cell) for cell in row] for row in self.rows]

    def markdown(self) -> str:
        """The table in Markdown, caption above, notes below."""
        marks = ["---" if number < self.words else "---:" for number in range(len(self.columns))]
        lines = [escaped(self.caption), "", _line(self.columns), _line(marks)]
        lines += [_line([str(cell) for cell in row]) for row in self.cells]
        lines += [text for note in self.notes for text in ("", escaped(note))]
        return "\n".join(lines) + "\n"

    def csv(self) -> str:
        """The same cells, without emphasis."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows([cell.text for cell in row] for row in self.cells)
        return text.getvalue()


def _line(words: Sequence[str]) -> str:
    return "| " + " | ".join(escaped(word).replace("|", r"\|") for word in words) + " |"


def escaped(text: str) -> str:
    """A text in Markdown that shows as it reads: names and reasons that users wrote are neither tags nor links."""
    without_tags = re.sub(r"<(?=[A-Za-z/!?])", "&lt;", " ".join(text.splitlines()))
    return re.sub(r"\](?=[(\[:])", r"\]", without_tags)


# -- how numbers read ------------------------------------------------------------------------------------------------


def spread(values: Sequence[float], digits: int, factor: float = 1.0) -> str:
    """Mean ± standard deviation."""
    if not values:
        return "-"
    mean = f"{factor * statistics.fmean(values):.{digits}f}"
    return f"{mean} ± {factor * statistics.stdev(values):.{digits}f}" if len(values) > 1 else mean


def in_percent(shares: Sequence[float]) -> str:
    """Mean ± standard deviation of shares, in per cent with two digits after the point or two that count."""
    return spread(shares, _digits(statistics.fmean(shares)), 100) if shares else "-"


def median(shares: Sequence[float]) -> str:
    """The median of shares, in per cent, as exactly."""
    return f"{100 * (middle := statistics.median(shares)):.{_digits(middle)}f}" if shares else "-"


def _digits(share: float) -> int:
    return max(2, 1 - math.floor(math.log10(100 * share))) if share > 0 else 2


def as_published(value: Sequence[float] | float | None, digits: int) -> str:
    """A published number, or mean and standard deviation."""
    if value is None:
        return "-"
    if isinstance(value, int | float):
        return f"{value:.{digits}f}"
    return f"{value[0]:.{digits}f} ± {value[1]:.{digits}f}"


def scientific(value: float | None) -> str:
    """A number of any size in three digits: 0 stays 0."""
    if value is None:
        return "-"
    return "0" if value == 0 else f"{value:.3g}" if 1e-2 <= abs(value) < 1e4 else f"{value:.1e}"


def percent(share: float) -> str:
    """A share in per cent, in two digits or more."""
    value = 100 * share
    return f"{value:.0f} %" if value >= 10 else f"{value:.2g} %"


def times(value: float | None) -> str:
    """A factor."""
    if value is None:
        return "-"
    return f"{value:.0f}×" if value >= 20 else f"{value:.1f}×" if value >= 10 else f"{value:.2f}×"


def counted(rows: Sequence[Mapping[str, Any]]) -> str:
    """How many runs finished, and what became of the others: "4 of 5, 1 diverged"; and how many learned nothing."""
    counts = Counter(row["status"] for row in rows)
    collapsed = sum(row["status"] == "finished" and (row.get("l2_relative") or 0) > COLLAPSED for row in rows)
    others = [f", {counts[status]} {status}" for status in sorted(counts) if status != "finished"]
    return f"{counts['finished']} of {len(rows)}" + "".join(others) + f", {collapsed} collapsed" * bool(collapsed)
