"""Draw a table as a figure: mean ± standard deviation, a dot per seed, and the published value beside."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.container import ErrorbarContainer

from reproduction.analysis.figures import plain_log

#: From this ratio of the largest to the smallest value on, an axis is logarithmic.
_WIDE = 6.0
#: Rows above and below the line of a label: ours, and the published value.
_OURS, _THEIRS = -0.14, 0.2
_PUBLISHED = "0.45"
_MOST_TICKS = 6


@dataclass(frozen=True)
class TableRow:
    """Values of one method, by seed, and the published mean with its standard deviation if there is one."""

    label: str
    colour: str
    marker: str
    values: Sequence[float]
    published: Sequence[float] | None = None


def draw_rows(axes: Axes, rows: Sequence[TableRow], xlabel: str) -> None:
    """Draw the rows of a table, the first at the top."""
    every = [value for row in rows for value in (*row.values, *(row.published or ())[:1]) if value > 0]
    logarithmic = bool(every) and max(every) > _WIDE * min(every)
    for height, row in enumerate(rows):
        if row.values:
            places = [height + _OURS] * len(row.values)
            axes.plot(row.values, places, row.marker, color=row.colour, alpha=0.4, markersize=5)
            _mean(axes, row.values, height + _OURS, logarithmic, fmt=row.marker, color=row.colour, markersize=7,
                  elinewidth=1.6, markeredgecolor="white")  # fmt: skip
        if row.published is not None:
            mean, deviation = [*row.published, 0.0][:2]
            _interval(axes, mean, deviation, height + _THEIRS, min(every), logarithmic, fmt="D", color=_PUBLISHED,
                      markersize=6, elinewidth=1.2, markerfacecolor="white")  # fmt: skip
    axes.set_yticks(range(len(rows)), [row.label for row in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    for place in range(1, len(rows)):
        axes.axhline(place - 0.5, color="0.9", linewidth=0.8, zorder=0)
    axes.set_xlabel(xlabel)
    if logarithmic:
        plain_log(axes, x=ticks(min(every), max(every)), y=None)
    elif every:
        axes.set_xlim(left=0)


def legend_text() -> str:
    """Return the words that explain the marks."""
    return "filled: ours, mean ± standard deviation and a dot per seed; ◇: published mean ± standard deviation"


def ticks(low: float, high: float) -> list[float]:
    """Return round ticks of a logarithmic axis: 1, 2 and 5 times powers of ten, or fewer over many decades."""
    low, high = 0.7 * low, 1.25 * high
    for factors, step in (((1, 2, 5), 1), ((1,), 1), ((1,), 2)):
        every = [factor * 10.0**decade for decade in range(-12, 13, step) for factor in factors]
        found = [tick for tick in every if low <= tick <= high]
        if len(found) <= _MOST_TICKS:
            return found
    return found[::2]


def _mean(axes: Axes, values: Sequence[float], height: float, logarithmic: bool, **style: object) -> None:
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    _interval(axes, statistics.fmean(values), deviation, height, min(values), logarithmic, **style)


def _interval(
    axes: Axes, mean: float, deviation: float, height: float, least: float, logarithmic: bool, **style: object
) -> ErrorbarContainer:
    # A logarithmic axis has no place for what is below zero.
    below = min(deviation, mean - 0.8 * min(least, mean)) if logarithmic else min(deviation, mean)
    cap = mpl.rcParams["lines.linewidth"] * 2
    return axes.errorbar([mean], [height], xerr=[[below], [deviation]], capsize=cap, **style)  # type: ignore[arg-type]
