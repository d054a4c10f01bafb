"""Styles and axes that the figures of experiments share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatter

from dudx.lab import file_formats, plots
from dudx.lab.run.engine_table import engines_in_order

#: Colours and markers of engines in the order of tables; the last one is for engines of users.
_STYLES = [(plots.COLOURS[n], marker) for n, marker in zip((6, 0, 2, 1, 3, 4, 5), "os^DvPX", strict=True)]


def engine_style(name: str) -> tuple[str, str]:
    """Return the colour and the marker of an engine in all figures."""
    known = list(engines_in_order())
    return _STYLES[min(known.index(name) if name in known else len(known), len(_STYLES) - 1)]


@contextmanager
def panels(path: Path, rows: int, columns: int, size: tuple[float, float]) -> Iterator[tuple[Figure, list[list[Axes]]]]:
    """Open rows and columns of axes in the common style; the figure is written to `path` in the end."""
    with mpl.rc_context(plots.STYLE):
        figure = Figure(figsize=size, layout="constrained")
        yield figure, figure.subplots(rows, columns, squeeze=False).tolist()
        with file_formats.atomic(path) as temporary:
            figure.savefig(temporary, format="png")


class _Plain(LogFormatter):
    """Formatter of logarithmic axes with plain numbers: 0.5, 20, 300."""

    def __call__(self, x: float, pos: int | None = None) -> str:
        return f"{x:.6g}" if super().__call__(x, pos) else ""


def drawn(axes: Axes) -> bool:
    """Return whether axes have any points; empty axes cannot be logarithmic."""
    return any(len(np.atleast_1d(line.get_xdata())) for line in axes.lines)


def plain_log(axes: Axes, x: Sequence[float] | None = (), y: Sequence[float] | None = ()) -> None:
    """Make axes logarithmic with plain numbers, at the given or automatic ticks; None leaves an axis alone."""
    for axis, scale, ticks in ((axes.xaxis, axes.set_xscale, x), (axes.yaxis, axes.set_yscale, y)):
        if ticks is None or not drawn(axes):
            continue
        scale("log")
        for kind in ("major", "minor"):
            getattr(axis, f"set_{kind}_formatter")(_Plain(labelOnlyBase=False, minor_thresholds=(2, 0.5)))
        if ticks:
            axis.set_ticks(list(ticks), [f"{tick:g}" for tick in ticks])
            axis.set_ticks([], minor=True)


def notice(path: Path, text: str) -> None:
    """Draw a picture that only says why there is no figure."""
    with plots.figure(path, 1, (7, 1.2)) as (axes,):
        axes.set_axis_off()
        axes.text(0.5, 0.5, text, ha="center", va="center", wrap=True)
