"""Shapes that are moved, turned, stretched, extruded and intersected."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy import special, stats
from stated import F64

from dudx.errors import InputError
from dudx.lab import (
    Ball,
    Box,
    Dirichlet,
    Disc,
    Ellipse,
    Extrusion,
    Interval,
    Neumann,
    Polygon,
    Problem,
    move,
    rotate,
    scale,
    solve,
)
from dudx.lab.problems.geometry import Shape

TRIANGLE = Polygon((0, 0), (3, 0), (0, 4))
#: The perimeter of an ellipse with half axes a > b is 4 a E(1 - b²/a²).
ELLIPSE = 4 * 3 * special.ellipe(1 - 1 / 9)

#: Shapes, the measures of their boundaries, and their areas or volumes.
SHAPES: dict[str, tuple[Shape, float, float]] = {
    "moved": (move(TRIANGLE, (1e3, -5)), 12, 6),
    "turned": (rotate(Box((0, 0), (2, 1)), 30, about=(1, 1)), 6, 2),
    "turned hole": (rotate(Box((-2, -2), (2, 2)) - Box((-1, -0.5), (1, 0.5)), 17), 22, 14),
    "stretched": (scale(Box((0, 0), (1, 1)), (3, 2)), 10, 6),
    "ellipse": (Ellipse((1, 2), (3, 1)), ELLIPSE, 3 * math.pi),
    "turned ellipse": (Ellipse((-7, 2), (1, 3), degrees=35), ELLIPSE, 3 * math.pi),
    "tiny ellipse": (Ellipse((5e-7, 0), (3e-7, 1e-7)), 1e-7 * ELLIPSE, 3e-14 * math.pi),
    "half an ellipse": (Ellipse((0, 0), (3, 1)) & Box((0, -2), (4, 2)), ELLIPSE / 2 + 2, 1.5 * math.pi),
    "plate with an ellipse": (Box((-4, -4), (4, 4)) - Ellipse((0, 0), (3, 1), 20), 32 + ELLIPSE, 64 - 3 * math.pi),
    "lens": (Disc((0, 0), 1) & Disc((1, 0), 1), 4 * math.pi / 3, 2 * math.pi / 3 - math.sqrt(3) / 2),
    "quarter": (Disc((0, 0), 1) & Box((0, 0), (2, 2)), 2 + math.pi / 2, math.pi / 4),
    "three": (Disc((0, 0), 2) & Box((-1, -3), (1, 3)) & Box((-3, -1), (3, 1)), 8, 4),
    "turned box": (rotate(Box((0, 0, 0), (1, 2, 3)), 40, axis=(1, 1, 0)), 22, 6),
    "ball": (scale(move(Ball((0, 0, 0), 1), (1, 0, 0)), 2), 16 * math.pi, 32 / 3 * math.pi),
    "prism": (Extrusion(TRIANGLE, -1, 1), 2 * 6 + 12 * 2, 12),
    "tube": (Extrusion(Disc((0, 0), 2) - Disc((0, 0), 1), 0, 5), 6 * math.pi + 30 * math.pi, 15 * math.pi),
    "turned prism": (rotate(Extrusion(TRIANGLE, 0, 2), 90, axis=(1, 0, 0)), 36, 12),
}


@pytest.mark.parametrize("name", SHAPES)
def test_boundaries_have_their_measure_and_normals_point_out(name: str) -> None:
    shape, measure, volume = SHAPES[name]
    assert sum(piece.length for piece in shape.pieces) == pytest.approx(measure, rel=3e-3)
    box = math.prod(b - a for a, b in zip(*shape.bounds, strict=True))
    assert shape._share * box == pytest.approx(volume, rel=3e-2)
    size = box ** (1 / shape.dimension)
    x, n, _ = shape.sample_boundary(400, torch.Generator().manual_seed(1), dtype=F64)
    assert float(shape.signed_distance(x).abs().max()) < 1e-9 * size
    assert torch.allclose(n.norm(dim=1), torch.ones(400, dtype=F64))
    assert not shape.contains(x + 1e-5 * size * n).any()
    assert float(shape.contains(x - 1e-5 * size * n).double().mean()) > 0.99  # but at sharp corners
    inside = shape.sample(300, torch.Generator().manual_seed(1), dtype=F64)
    low, high = (torch.tensor(corner, dtype=F64) for corner in shape.bounds)
    assert bool(((inside >= low) & (inside <= high)).all())


def test_points_are_spread_evenly_over_an_ellipse() -> None:
    x, _, _ = Ellipse((0, 0), (3, 1)).sample_boundary(20_000, torch.Generator().manual_seed(0), dtype=F64)
    angle = np.sort(torch.atan2(x[:, 1], x[:, 0] / 3).numpy() % (2 * math.pi))
    # The length up to an angle, from the point (3, 0).
    lengths = 3 * (special.ellipeinc(angle + math.pi / 2, 1 - 1 / 9) - special.ellipe(1 - 1 / 9)) / ELLIPSE
    assert stats.kstest(lengths, "uniform").pvalue > 1e-3


def test_distances_are_exact_where_lengths_keep_their_ratios() -> None:
    turned = rotate(Box((0, 0), (2, 1)), 30, about=(1, 1))
    x = 5 * torch.rand(200, 2, dtype=F64, generator=torch.Generator().manual_seed(0)) - 1
    back = torch.tensor(
        [[math.cos(math.pi / 6), -math.sin(math.pi / 6)], [math.sin(math.pi / 6), math.cos(math.pi / 6)]]
    )
    before = (x - 1) @ back.to(F64) + 1
    assert torch.allclose(turned.signed_distance(x), Box((0, 0), (2, 1)).signed_distance(before), atol=1e-12)
    prism, y = Extrusion(Box((0, 0), (2, 1)), 0, 3), 5 * torch.rand(200, 3, dtype=F64) - 1
    assert torch.allclose(prism.signed_distance(y), Box((0, 0, 0), (2, 1, 3)).signed_distance(y), atol=1e-12)


def test_conditions_are_on_transformed_pieces() -> None:
    hole, plate = Ellipse((0, 0), (2, 1), 30), rotate(Box((-4, -4), (4, 4)), 45)
    problem = Problem(
        lambda u: u.xx + u.yy,
        ("x", "y"),
        plate - hole,
        [Dirichlet(u=1.0, on=hole), Neumann(u=0.0, on="outside")],
    )
    x, _ = problem.conditions[0].sample(100, torch.Generator().manual_seed(0), torch.device("cpu"), F64)
    assert float(hole.signed_distance(x).abs().max()) < 1e-9
    x, _ = problem.conditions[1].sample(100, torch.Generator().manual_seed(0), torch.device("cpu"), F64)
    assert float(plate.signed_distance(x).abs().max()) < 1e-9


def test_a_problem_on_an_ellipse_is_solved() -> None:
    """u = 1 - x²/4 - y² vanishes on the ellipse with half axes 2 and 1."""
    problem = Problem(lambda u: u.xx + u.yy + 2.5, ("x", "y"), Ellipse((0, 0), (2, 1)), [Dirichlet(u=0.0)])
    solution = solve(problem, epochs=40, width=10, depth=2, batch=200, minutes=10, quiet=True)
    assert solution.error(lambda x, y: 1 - x * x / 4 - y * y) < 1e-3
    flow = solution.integral(lambda u, n: u.along(n), on="boundary")
    assert flow.value == pytest.approx(-2.5 * 2 * math.pi, rel=1e-3)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Ellipse((0, 0), (1, -1)), "two positive numbers"),
        (lambda: Ellipse((0, 0), (1,)), "two positive numbers"),
        (lambda: Ellipse((0, 0, 0), (1, 2)), "takes a finite matrix"),
        (lambda: scale(Box((0, 0), (1, 1)), 0.0), "positive factors"),
        (lambda: scale(Box((0, 0), (1, 1)), (1, 2, 3)), "positive factors"),
        (lambda: scale(Ball((0, 0, 0), 1), (1, 2, 3)), "not stretched"),
        (lambda: rotate(Interval(0, 1), 30), "in the plane and in space"),
        (lambda: rotate(Box((0, 0), (1, 1)), math.nan), "finite number of degrees"),
        (lambda: rotate(Box((0, 0), (1, 1)), 30, about=(1, 2, 3)), "about a point of as many"),
        (lambda: rotate(Ball((0, 0, 0), 1), 30, axis=(0, 0, 0)), "not all zero"),
        (lambda: move(Interval(0, 1) * Interval(0, 1), (1, 1)), "A shape in space is transformed"),
        (lambda: move(Box((0, 0), (1, 1)), (1,)), "takes a finite matrix"),
        (lambda: Extrusion(Ball((0, 0, 0), 1), 0, 1), "in the plane are extruded"),
        (lambda: Extrusion(Disc((0, 0), 1), 1, 1), "from a lower to a higher"),
        (lambda: Disc((0, 0), 1) & Disc((5, 0), 1), "share no points"),
        (lambda: Disc((0, 0), 1) & Ball((0, 0, 0), 1), "dimension"),
    ],
)
def test_shapes_that_cannot_be_are_refused(make: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        make()
