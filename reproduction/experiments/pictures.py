"""What the pictures of experiments share beyond `dudx.lab.plots`."""

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

#: Colours and markers of engines in the order of tables; the last one is for those of users.
_STYLES = [(plots.COLOURS[n], marker) for n, marker in zip((6, 0, 2, 1, 3, 4, 5), "os^DvPX", strict=True)]


def engine_style(name: str) -> tuple[str, str]:
    """A colour and a marker for an engine, the same in every picture."""
    known = list(engines_in_order())
    return _STYLES[min(known.index(name) if name in known else len(known), len(_STYLES) - 1)]


@contextmanager
def panels(path: Path, rows: int, columns: int, size: tuple[float, float]) -> Iterator[tuple[Figure, list[list[Axes]]]]:
    """Rows and columns of axes in the common style, written to `path` whole or not at all."""
    with mpl.rc_context(plots.STYLE):
        figure = Figure(figsize=size, layout="constrained")
        yield figure, figure.subplots(rows, columns, squeeze=False).tolist()
        with file_formats.atomic(path) as temporary:
            figure.savefig(temporary, format="png")


class _Plain(LogFormatter):
    """Ticks of a logarithmic axis as plain numbers: 0.5, 20, 300."""

    def __call__(self, x: float, pos: int | None = None) -> str:
        return f"{x:.6g}" if super().__call__(x, pos) else ""


def drawn(axes: Axes) -> bool:
    """Whether there is anything to be seen; empty axes cannot be logarithmic."""
    return any(len(np.atleast_1d(line.get_xdata())) for line in axes.lines)


def plain_log(axes: Axes, x: Sequence[float] | None = (), y: Sequence[float] | None = ()) -> None:
    """Logarithmic axes with plain numbers: at the given ticks, or at those found fit; None leaves an axis alone."""
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
    """A picture that says why there is none."""
    with plots.figure(path, 1, (7, 1.2)) as (axes,):
        axes.set_axis_off()
        axes.text(0.5, 0.5, text, ha="center", va="center", wrap=True)
