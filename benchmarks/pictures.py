"""Shared settings of the benchmarks' pictures."""

from __future__ import annotations

from matplotlib.axes import Axes


def against_the_batch(axes: Axes, quantity: str) -> None:
    """Set logarithmic axes for a quantity that grows with the batch."""
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlabel("points in the batch")
    axes.set_ylabel(quantity)
    axes.grid(True, which="major", color="#DDDDDD", linewidth=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
