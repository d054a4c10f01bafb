"""Draw the pictures of explanation.md from the library: python docs/pictures.py."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import torch

from dudx import FD, D, Laplacian, Taylor, find_eps
from dudx.engines.difference.stencils import tensor_product
from dudx.lab.plots import COLOURS, figure

IMAGES = Path(__file__).parent / "images"
#: Titles of the stencils, with the orders of their terms along x and y, and the accuracy.
STENCILS = {
    "u_x, accuracy 2": ([(1, 0)], 2),
    "u_xx + u_yy, accuracy 2": ([(2, 0), (0, 2)], 2),
    "u_xy, accuracy 2": ([(1, 1)], 2),
    "u_xx, accuracy 4": ([(2, 0)], 4),
}


def stencils() -> None:
    """Draw points and weights of finite-difference stencils."""
    with figure(IMAGES / "stencils.png", len(STENCILS), (10, 2.9)) as axes:
        for ax, (title, (terms, accuracy)) in zip(axes, STENCILS.items(), strict=True):
            weights: dict[tuple[int, ...], Fraction] = {}
            for orders in terms:
                for offset, weight in tensor_product(orders, accuracy).items():
                    weights[offset] = weights.get(offset, Fraction(0)) + weight
            for (i, j), weight in weights.items():
                positive = float(weight) > 0
                ax.scatter(i, j, s=420, color=COLOURS[0] if positive else COLOURS[1], alpha=0.25)
                ax.text(i, j, str(weight), ha="center", va="center", fontsize=8)
            ax.set(xlim=(-2.6, 2.6), ylim=(-1.9, 1.9), aspect="equal", title=title, xticks=[], yticks=[])
            ax.grid(visible=False)
            ax.axhline(0, color="0.85", zorder=0)
            ax.axvline(0, color="0.85", zorder=0)


def streams() -> None:
    """Draw the rows of activations per point by engine and request."""
    x = torch.rand(2, 4)
    cases = {
        "Burgers' residual": [D(), D(0), D(1) - 0.01 * D(0, 0)],
        "Laplacian in the plane": [Laplacian((0, 1))],
        "Laplacian in 4 variables": [Laplacian()],
        "biharmonic in the plane": [Laplacian((0, 1)) @ Laplacian((0, 1))],
    }
    with figure(IMAGES / "streams.png", 1, (7, 2.9)) as (ax,):
        for number, (engine, label) in enumerate(((Taylor(), "Taylor: streams"), (FD(0.1), "FD: evaluations"))):
            rows = [engine.rows(x, operators).at_once for operators in cases.values()]
            places = [place + 0.4 * number for place in range(len(cases))]
            bars = ax.barh(places, rows, height=0.36, color=COLOURS[number], label=label)
            ax.bar_label(bars, padding=3, fontsize=8)
        ax.set(yticks=[place + 0.2 for place in range(len(cases))], yticklabels=list(cases), xlabel="rows per point")
        ax.invert_yaxis()
        ax.legend()


def valley() -> None:
    """Draw the error of finite differences against the step, in float32 and float64."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(2, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
    points = torch.rand(256, 2)
    with figure(IMAGES / "valley.png", 2, (9, 3.2)) as axes:
        for ax, dtype in zip(axes, (torch.float32, torch.float64), strict=True):
            for number, order in enumerate((1, 2)):
                curve = find_eps(model.to(dtype), points.to(dtype), order=order)
                ax.loglog(curve.steps, curve.rmse, color=COLOURS[number], label=f"derivative {order}")
                ax.axvline(curve.step, color=COLOURS[number], linestyle=":")
            ax.set(title=str(dtype).removeprefix("torch."), xlabel="step", ylabel="error (RMS)")
            ax.legend()


if __name__ == "__main__":
    stencils()
    streams()
    valley()
