"""Draw the pictures of methods.md from the library: python docs/method_pictures.py."""

from __future__ import annotations

import math
from collections.abc import Sequence
from math import gamma
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

import dudx
from dudx.engines.request import request_of
from dudx.lab.plots import COLOURS, figure
from reproduction.analysis.figures import plain_log

IMAGES = Path(__file__).parent / "images"


def _rms(error: Tensor) -> float:
    return float(error.detach().square().mean().sqrt())


def _distance(x: Tensor) -> Tensor:
    return torch.linalg.vector_norm(x, dim=1) - 1


def inside() -> None:
    """Draw rows of stencils near a circle, with and without `inside=`."""
    angles = torch.linspace(0.35, 1.25, 4, dtype=torch.float64)
    depths = torch.tensor([0.02, 0.06, 0.12, 0.3], dtype=torch.float64)
    x = torch.stack([(1 - depths) * angles.cos(), (1 - depths) * angles.sin()], dim=1)
    engines = {"FD(0.1)": dudx.FD(0.1), "FD(0.1, inside=distance)": dudx.FD(0.1, inside=_distance)}
    circle = torch.linspace(0, math.pi / 2, 200)
    with figure(IMAGES / "methods-inside.png", 2, (9, 4.2)) as axes:
        for ax, (title, engine) in zip(axes, engines.items(), strict=True):
            rows: list[Tensor] = []

            def noted(points: Tensor, rows: list[Tensor] = rows) -> Tensor:
                rows.append(points.detach())
                return points.square().sum(1, keepdim=True)

            engine.derivatives(noted, x, request_of(dudx.Laplacian(), x))
            at = rows[-1]
            outside = _distance(at) > 1e-12
            ax.plot(circle.cos(), circle.sin(), color="0.4")
            ax.scatter(*at[~outside].T, color=COLOURS[0], s=25, label="rows inside")
            ax.scatter(*at[outside].T, color=COLOURS[1], s=40, marker="x", label="rows outside")
            ax.scatter(*x.T, color="black", s=45, marker="+", zorder=3, label="points")
            ax.set(title=title, xlim=(0.1, 1.15), ylim=(0.1, 1.15), aspect="equal", xlabel="x", ylabel="y")
        axes[0].legend(loc="lower left", fontsize=8)


def dimensions() -> None:
    """Draw the true and the reported error of randomised estimates against the number of samples."""
    x = torch.rand(50, 200, dtype=torch.float64)
    weights = 1 + torch.rand(200, 1, dtype=torch.float64)
    samples, off, said = (2, 4, 8, 16, 32, 64, 128), [], []
    for count in samples:
        engine = dudx.STDE(count, generator=torch.Generator().manual_seed(1))
        ((value, error),) = engine.estimated(lambda x: torch.cos(x) @ weights, x, [dudx.Laplacian()])
        off.append(_rms(value + torch.cos(x) @ weights))
        said.append(_rms(error))
    with figure(IMAGES / "methods-dimensions.png", 1, (5.5, 4)) as (ax,):
        ax.loglog(samples, off, "o-", color=COLOURS[0], label="error")
        ax.loglog(samples, said, "s--", color=COLOURS[1], label="standard error it reports")
        plain_log(ax)
        ax.set(xlabel="samples of 200 axes", ylabel="rms over points", title="STDE: the Laplacian in 200 dimensions")
        ax.legend()


def _slopes(label: str, counts: Sequence[int], errors: Sequence[float]) -> str:
    slope = -np.polyfit(np.log(counts), np.log(errors), 1)[0]
    return f"{label}: order {slope:.2f}"


def fractional() -> None:
    """Draw errors of fractional derivatives against the nodes, with measured orders."""
    counts, t = (16, 32, 64, 128, 256), torch.linspace(0.1, 1, 20, dtype=torch.float64).unsqueeze(1)
    with figure(IMAGES / "methods-fractional.png", 2, (11, 4)) as (left, right):
        for colour, (method, alpha) in zip(
            COLOURS, [("l1", 0.3), ("l1", 0.7), ("grunwald", 0.3), ("grunwald", 0.7)], strict=False
        ):
            truth = gamma(4) / gamma(4 - alpha) * t ** (3 - alpha)
            errors = []
            for count in counts:
                term = dudx.Residual(lambda u: u.caputo("t", alpha, nodes=count, method=method), ("t",))  # noqa: B023
                errors.append(_rms(term(lambda t: t**3, t, dudx.AD()) - truth))
            left.loglog(counts, errors, "o-", color=colour, label=_slopes(f"{method}, α = {alpha}", counts, errors))
        left.set(xlabel="nodes", ylabel="RMSE", title="Caputo derivative of t³")
        x = torch.linspace(-0.8, 0.8, 21, dtype=torch.float64).unsqueeze(1)
        for colour, alpha in zip(COLOURS, (0.5, 1.5), strict=False):
            constant = 2**alpha * gamma(alpha / 2 + 2) * gamma((1 + alpha) / 2) / gamma(0.5)
            truth, errors = constant * (1 - (1 + alpha) * x**2), []
            for count in counts:
                term = dudx.Residual(lambda u: u.fractional_laplacian("x", alpha, (-1, 1), count), ("x",))  # noqa: B023
                bump = lambda x: (1 - x**2).clamp(min=0) ** (1 + alpha / 2)  # noqa: B023, E731
                errors.append(_rms(term(bump, x, dudx.AD()) - truth))
            right.loglog(counts, errors, "o-", color=colour, label=_slopes(f"α = {alpha}", counts, errors))
        right.set(xlabel="nodes to each side", title="(-∂²)^(α/2) of (1 - x²)^(1 + α/2)")
        for ax in (left, right):
            plain_log(ax, x=counts, y=None)
            ax.legend(fontsize=8)


if __name__ == "__main__":
    torch.manual_seed(0)
    for picture in (inside, dimensions, fractional):
        picture()
