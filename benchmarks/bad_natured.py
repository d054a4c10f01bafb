"""Problems on which error estimates fail, with exact solutions: layers, singular corners, non-uniqueness, and others.

Some have no unique solution. For these the right answer is that there is no estimate, and `open` is True.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from dudx.lab import Box, Data, Dirichlet, Initial, Interval, Neumann, Polygon, Problem

PI = math.pi
L_SHAPE = Polygon((0, 0), (1, 0), (1, 1), (-1, 1), (-1, -1), (0, -1))


@dataclass(frozen=True)
class BadNatured:
    """A problem and its solution; `open` if it has other solutions too."""

    problem: Problem
    solution: Callable[..., Any]
    seconds: float = 6.0
    open: bool = False


def layer(width: float) -> BadNatured:
    """State a boundary layer at x = 1."""
    return BadNatured(
        Problem(
            lambda u: -width * u.xx + u.x - 1,
            inputs=("x",),
            domain=Interval(0, 1),
            conditions=[Dirichlet(u=0.0)],
            title=f"Boundary layer, {width:g}",
        ),
        lambda x: x - torch.exp((x - 1) / width),
    )


def layer_plane(width: float) -> BadNatured:
    """State boundary layers at x = 1 and y = 1."""

    def profile(z: torch.Tensor) -> torch.Tensor:
        return z - torch.exp((z - 1) / width)

    def source(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        # -w p'' + p' = 1 along each axis.
        return profile(x) + profile(y)

    return BadNatured(
        Problem(
            lambda u, x, y: -width * (u.xx + u.yy) + u.x + u.y - source(x, y),
            inputs=("x", "y"),
            domain=Box((0, 0), (1, 1)),
            conditions=[Dirichlet(u=lambda x, y: profile(x) * profile(y))],
            title=f"Layers in a square, {width:g}",
        ),
        lambda x, y: profile(x) * profile(y),
    )


def corner(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return r^(2/3) sin(2θ/3), which is harmonic in the L-shape and zero on both sides of its inner corner."""
    angle = torch.atan2(y, x)
    angle = torch.where(angle < -1e-12, angle + 2 * PI, angle)
    return (x * x + y * y) ** (1 / 3) * torch.sin(2 / 3 * angle)


def l_shape() -> BadNatured:
    """State Laplace's equation in an L-shaped domain."""
    return BadNatured(
        Problem(
            lambda u: u.xx + u.yy,
            inputs=("x", "y"),
            domain=L_SHAPE,
            conditions=[Dirichlet(u=corner)],
            title="L-shape",
        ),
        corner,
        20.0,
    )


def l_shape_moving() -> BadNatured:
    """State heat in an L-shaped domain with a source that moves on a circle."""

    def bump(x: torch.Tensor, y: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        a, b = x + 0.5 * torch.cos(PI * t), y - 0.5 * torch.sin(PI * t)
        return torch.exp(-20 * (a * a + b * b))

    def exact(x: torch.Tensor, y: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        return torch.cos(t) * corner(x, y) + bump(x, y, t)

    def source(x: torch.Tensor, y: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        a, b = x + 0.5 * torch.cos(PI * t), y - 0.5 * torch.sin(PI * t)
        speed = -40 * (a * -0.5 * PI * torch.sin(PI * t) + b * -0.5 * PI * torch.cos(PI * t))
        return -torch.sin(t) * corner(x, y) + bump(x, y, t) * (speed - 1600 * (a * a + b * b) + 80)

    return BadNatured(
        Problem(
            lambda u, x, y, t: u.t - (u.xx + u.yy) - source(x, y, t),
            inputs=("x", "y", "t"),
            domain=L_SHAPE * Interval(0, 1),
            conditions=[Dirichlet(u=exact), Initial(u=lambda x, y: exact(x, y, torch.zeros_like(x)))],
            title="L-shape, moving source",
        ),
        exact,
        20.0,
    )


def backward_heat() -> BadNatured:
    """State the heat equation backward in time, where small errors grow by e^(k² π²)."""

    def exact(x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        return torch.sin(PI * x) * torch.exp(0.1 * PI**2 * t) + 0.2 * torch.sin(2 * PI * x) * torch.exp(0.4 * PI**2 * t)

    return BadNatured(
        Problem(
            lambda u: u.t + 0.1 * u.xx,
            inputs=("x", "t"),
            domain=Interval(0, 1) * Interval(0, 1),
            conditions=[Dirichlet(u=0.0), Initial(u=lambda x: exact(x, torch.zeros_like(x)))],
            title="Backward heat",
        ),
        exact,
    )


def resonance(distance: float) -> BadNatured:
    """State Helmholtz' equation with a wave number at a relative distance to an eigenvalue; at 0 it is not unique."""
    square = 5 * PI**2 * (1 + distance)

    def exact(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.sin(PI * x) * torch.sin(2 * PI * y) + x * y * (1 - x) * (1 - y) * 8

    def source(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        first = (square - 5 * PI**2) * torch.sin(PI * x) * torch.sin(2 * PI * y)
        return first + 8 * (square * x * y * (1 - x) * (1 - y) - 2 * y * (1 - y) - 2 * x * (1 - x))

    return BadNatured(
        Problem(
            lambda u, x, y: u.xx + u.yy + square * u - source(x, y),
            inputs=("x", "y"),
            domain=Box((0, 0), (1, 1)),
            conditions=[Dirichlet(u=0.0)],
            title="At resonance" if distance == 0 else f"Near resonance, {distance:g}",
        ),
        exact,
        open=distance == 0,
    )


def pure_neumann() -> BadNatured:
    """State Poisson's equation with fluxes alone: the solution is known up to a constant."""

    def exact(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.cos(PI * x) * torch.cos(PI * y)

    return BadNatured(
        Problem(
            lambda u, x, y: u.xx + u.yy + 2 * PI**2 * exact(x, y),
            inputs=("x", "y"),
            domain=Box((0, 0), (1, 1)),
            conditions=[Neumann(u=0.0)],
            title="Pure Neumann",
        ),
        exact,
        open=True,
    )


def eikonal() -> BadNatured:
    """State the eikonal equation in an interval: any zigzag solves it almost everywhere."""
    return BadNatured(
        Problem(
            lambda u: u.x * u.x - 1,
            inputs=("x",),
            domain=Interval(0, 1),
            conditions=[Dirichlet(u=0.0)],
            title="Eikonal",
        ),
        lambda x: 0.5 - torch.abs(x - 0.5),
        open=True,
    )


def open_outlet() -> BadNatured:
    """State flow in a channel whose outlet has a pressure and no other condition."""
    return BadNatured(
        Problem(
            lambda u, v, p: (
                u * u.x + v * u.y + p.x - 0.05 * (u.xx + u.yy),
                u * v.x + v * v.y + p.y - 0.05 * (v.xx + v.yy),
                u.x + v.y,
            ),
            inputs=("x", "y"),
            domain=Box((0, 0), (2, 1)),
            conditions=[
                Dirichlet(u=lambda y: 4 * y * (1 - y), v=0.0, on="left"),
                Dirichlet(u=0.0, v=0.0, on=["top", "bottom"]),
                Dirichlet(p=0.0, on="right"),
            ],
            title="Channel, open outlet",
        ),
        lambda x, y: (4 * y * (1 - y), 0 * y, 0.4 * (2 - x)),
        10.0,
        open=True,
    )


def jump() -> BadNatured:
    """State conduction through two materials, with the flux as an unknown function."""

    def conductivity(x: torch.Tensor) -> torch.Tensor:
        return torch.where(x < 0.5, 1.0, 100.0)

    # q = a u' with q' = -1, and u(0) = u(1) = 0: q = c - x.
    c = (1 / 8 + (1 / 2 - 1 / 8) / 100) / (1 / 2 + 1 / 200)

    def exact(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        left = c * x - x * x / 2
        right = (c * (x - 1) - (x * x - 1) / 2) / 100
        return torch.where(x < 0.5, left, right), c - x

    return BadNatured(
        Problem(
            lambda u, q, x: (u.x - q / conductivity(x), q.x + 1),
            inputs=("x",),
            domain=Interval(0, 1),
            conditions=[Dirichlet(u=0.0)],
            title="Jumping coefficient",
        ),
        exact,
    )


def jump_plane() -> BadNatured:
    """State conduction in a square whose conductivity jumps by a factor of 100 on a circle, smoothed over 2 %."""

    def conductivity(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        r = torch.sqrt((x - 0.5) ** 2 + (y - 0.5) ** 2)
        return 1 + 99 * torch.sigmoid((0.25 - r) / 0.02)

    def exact(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        # A radial profile with flux r: a(r) u' = r, integrated by a fine sum.
        r = torch.linspace(0, 0.75, 30001, dtype=torch.float64)
        slope = r / (1 + 99 * torch.sigmoid((0.25 - r) / 0.02))
        sums = torch.cat([torch.zeros(1, dtype=torch.float64), torch.cumsum((slope[1:] + slope[:-1]) / 2, 0) * r[1]])
        at = torch.sqrt((x - 0.5) ** 2 + (y - 0.5) ** 2).double() / r[1]
        low = at.long().clamp(max=len(r) - 2)
        return (sums[low] + (at - low) * (sums[low + 1] - sums[low])).to(x.dtype)

    return BadNatured(
        Problem(
            lambda u, p, q, x, y: (
                u.x - p / conductivity(x, y),
                u.y - q / conductivity(x, y),
                p.x + q.y - 2,
            ),
            inputs=("x", "y"),
            domain=Box((0, 0), (1, 1)),
            conditions=[Dirichlet(u=exact)],
            title="Round inclusion, factor 100",
        ),
        lambda x, y: (exact(x, y), x - 0.5, y - 0.5),
        10.0,
    )


def high_frequency() -> BadNatured:
    """State Poisson's equation with a source of ten half-waves along each side."""

    def exact(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.sin(10 * PI * x) * torch.sin(10 * PI * y)

    return BadNatured(
        Problem(
            lambda u, x, y: u.xx + u.yy + 200 * PI**2 * exact(x, y),
            inputs=("x", "y"),
            domain=Box((0, 0), (1, 1)),
            conditions=[Dirichlet(u=0.0)],
            title="High frequency",
        ),
        exact,
        10.0,
    )


def convection(seconds: float) -> BadNatured:
    """State a wave that is carried through an interval."""

    def exact(x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        return torch.sin(2 * PI * (x - 5 * t))

    return BadNatured(
        Problem(
            lambda u: u.t + 5 * u.x,
            inputs=("x", "t"),
            domain=Interval(0, 1) * Interval(0, 1),
            conditions=[
                Initial(u=lambda x: torch.sin(2 * PI * x)),
                Dirichlet(u=lambda t: torch.sin(-10 * PI * t), on="left"),
            ],
            title=f"Convection, {seconds:g} s",
        ),
        exact,
        seconds,
    )


def neumann_point() -> BadNatured:
    """State Poisson's equation with fluxes and the value at one point."""
    stated = pure_neumann()
    conditions = [Neumann(u=0.0), Data([[0.0, 0.0]], u=1.0)]
    problem = Problem(
        stated.problem.residual, ("x", "y"), stated.problem.domain, conditions, title="Neumann and one point"
    )
    return BadNatured(problem, stated.solution)


CASES: dict[str, Callable[[], BadNatured]] = {
    "layer_2": lambda: layer(1e-2),
    "layer_3": lambda: layer(1e-3),
    "layer_4": lambda: layer(1e-4),
    "layer_plane_2": lambda: layer_plane(2e-2),
    "layer_plane_3": lambda: layer_plane(2e-3),
    "l_shape": l_shape,
    "l_shape_moving": l_shape_moving,
    "backward_heat": backward_heat,
    "near_resonance": lambda: resonance(1e-3),
    "resonance": lambda: resonance(0.0),
    "pure_neumann": pure_neumann,
    "neumann_point": neumann_point,
    "eikonal": eikonal,
    "open_outlet": open_outlet,
    "jump": jump,
    "jump_plane": jump_plane,
    "high_frequency": high_frequency,
    "convection": lambda: convection(5.0),
}
