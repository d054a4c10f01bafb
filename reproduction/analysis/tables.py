"""Tables with emphasised cells, written as Markdown or CSV, and the formats of numbers in them."""

from __future__ import annotations

import csv
import io
import re
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dudx.errors import mean_percent

#: Relative error above which a training has collapsed: the network has hardly learned the solution.
COLLAPSED = 0.5


@dataclass(frozen=True)
class Cell:
    """Text of a table cell, bold or not."""

    text: str
    bold: bool = False

    def __str__(self) -> str:
        return f"**{self.text}**" if self.bold else self.text


@dataclass(frozen=True)
class Table:
    """Table with a caption and notes.

    Attributes:
        caption: above it.
        columns: headings.
        rows: cells.
        notes: below it.
        name: distinguishes the tables of one experiment; the main one has none.
        words: number of columns at the left that hold words; numbers follow.
    """

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell | str]]
    notes: Sequence[str] = field(default=())
    name: str = ""
    words: int = 1

    @property
    def cells(self) -> list[list[Cell]]:
        """All cells as `Cell` objects."""
        return [[cell if isinstance(cell, Cell) else Cell(cell) for cell in row] for row in self.rows]

    def markdown(self) -> str:
        """Return the table in Markdown, caption above, notes below."""
        marks = ["---" if number < self.words else "---:" for number in range(len(self.columns))]
        lines = [escaped(self.caption), "", _line(self.columns), _line(marks)]
        lines += [_line([str(cell) for cell in row]) for row in self.cells]
        lines += [text for note in self.notes for text in ("", escaped(note))]
        return "\n".join(lines) + "\n"

    def csv(self) -> str:
        """Return the table as CSV, without emphasis."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows([cell.text for cell in row] for row in self.cells)
        return text.getvalue()


def _line(words: Sequence[str]) -> str:
    return "| " + " | ".join(escaped(word).replace("|", r"\|") for word in words) + " |"


def escaped(text: str) -> str:
    """Escape a text for Markdown, so that names and reasons that users wrote are neither tags nor links."""
    without_tags = re.sub(r"<(?=[A-Za-z/!?])", "&lt;", " ".join(text.splitlines()))
    return re.sub(r"\](?=[(\[:])", r"\]", without_tags)


# -- formats of numbers ----------------------------------------------------------------------------------------------


def spread(values: Sequence[float], digits: int, factor: float = 1.0) -> str:
    """Format mean ± standard deviation."""
    if not values:
        return "-"
    mean = f"{factor * statistics.fmean(values):.{digits}f}"
    return f"{mean} ± {factor * statistics.stdev(values):.{digits}f}" if len(values) > 1 else mean


def in_percent(shares: Sequence[float]) -> str:
    """Format mean ± standard deviation of shares in per cent, with two decimals or two significant digits."""
    if not shares:
        return "-"
    return mean_percent(statistics.fmean(shares), statistics.stdev(shares) if len(shares) > 1 else None)


def median(shares: Sequence[float]) -> str:
    """Format the median of shares in per cent, with two decimals or two significant digits."""
    return mean_percent(statistics.median(shares)) if shares else "-"


def as_published(value: Sequence[float] | float | None, digits: int) -> str:
    """Format a published number, or mean and standard deviation."""
    if value is None:
        return "-"
    if isinstance(value, int | float):
        return f"{value:.{digits}f}"
    return f"{value[0]:.{digits}f} ± {value[1]:.{digits}f}"


def scientific(value: float | None) -> str:
    """Format a number of any size in three digits; 0 stays 0."""
    if value is None:
        return "-"
    return "0" if value == 0 else f"{value:.3g}" if 1e-2 <= abs(value) < 1e4 else f"{value:.1e}"


def times(value: float | None) -> str:
    """Format a factor."""
    if value is None:
        return "-"
    return f"{value:.0f}×" if value >= 20 else f"{value:.1f}×" if value >= 10 else f"{value:.2f}×"


def counted(rows: Sequence[Mapping[str, Any]]) -> str:
    """Format the number of finished runs and of the others, "4 of 5, 1 diverged", and of collapsed ones."""
    counts = Counter(row["status"] for row in rows)
    collapsed = sum(row["status"] == "finished" and (row.get("l2_relative") or 0) > COLLAPSED for row in rows)
    others = [f", {counts[status]} {status}" for status in sorted(counts) if status != "finished"]
    return f"{counts['finished']} of {len(rows)}" + "".join(others) + f", {collapsed} collapsed" * bool(collapsed)
