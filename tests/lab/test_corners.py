"""Re-entrant corners: how they are found, and the singular functions that a network gets of them."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from stated import F64

import dudx
from dudx.errors import InputError
from dudx.lab import (
    Box,
    CornerFeature,
    Dirichlet,
    Disc,
    Interval,
    Neumann,
    Periodic,
    Polygon,
    Problem,
    make_settings,
    move,
    rotate,
    solve,
)
from dudx.lab.problems.corners import re_entrant_corners

L_SHAPE = Polygon((0, 0), (1, 0), (1, 1), (-1, 1), (-1, -1), (0, -1))
SQUARE = Box((-1, -1), (1, 1))
ROOT = math.sqrt(0.5)
#: Shapes with the places, bisectors and angles (in π) of their corners.
SHAPES: dict[str, tuple[Any, list[tuple[tuple[float, float], tuple[float, float], float]]]] = {
    "polygon": (L_SHAPE, [((0, 0), (-ROOT, ROOT), 1.5)]),
    "cut box": (SQUARE - Box((0, -1), (1, 0)), [((0, 0), (-ROOT, ROOT), 1.5)]),
    "over time": (L_SHAPE * Interval(0, 1), [((0, 0), (-ROOT, ROOT), 1.5)]),
    "union": (
        Box((0, 0), (2, 1)) | Box((0.5, 0.5), (1, 2)),
        [((0.5, 1), (ROOT, -ROOT), 1.5), ((1, 1), (-ROOT, -ROOT), 1.5)],
    ),
    "hole": (
        SQUARE - Box((-0.5, -0.5), (0.5, 0.5)),
        [((a / 2, b / 2), (a * ROOT, b * ROOT), 1.5) for a in (-1, 1) for b in (-1, 1)],
    ),
    "turned": (rotate(L_SHAPE, 45), [((0, 0), (-1, 0), 1.5)]),
    "far away": (move(L_SHAPE, (1e5, -1e4)), [((1e5, -1e4), (-ROOT, ROOT), 1.5)]),
    "arrow": (Polygon((0, 0), (2, -1), (1, 0), (2, 1)), [((1, 0), (-1, 0), 2 - 0.5)]),
    "slit": (SQUARE - Polygon((0, 0), (1, -0.1), (1, 0.1)), [((0, 0), (-1, 0), 2 - 2 * math.atan(0.1) / math.pi)]),
    "box": (SQUARE, []),
    "disc": (SQUARE - Disc((0, 0), 0.3), []),
    "interval": (Interval(0, 1), []),
    "space": (Box((0, 0, 0), (1, 1, 1)) - Box((0, 0, 0), (0.5, 0.5, 0.5)), []),
}


@pytest.mark.parametrize("name", SHAPES)
def test_corners_are_found(name: str) -> None:
    shape, expected = SHAPES[name]
    found = sorted(re_entrant_corners(shape))
    assert len(found) == len(expected)
    for corner, (place, bisector, angle) in zip(found, sorted(expected), strict=True):
        assert corner.place == pytest.approx(place, abs=1e-9)
        assert corner.bisector == pytest.approx(bisector, abs=1e-5)
        assert corner.angle == pytest.approx(angle * math.pi, abs=1e-5)


@pytest.mark.parametrize("engine", [dudx.AD(), dudx.Taylor()])
def test_the_functions_are_harmonic_and_vanish_on_the_edges(engine: Any) -> None:
    feature = CornerFeature((0.3, -0.2), (-1, 1), 1.5 * math.pi).double()
    shape = move(L_SHAPE, (0.3, -0.2))
    x = shape.sobol(200, dtype=F64)
    (laplacian,) = dudx.evaluate(feature, x, [dudx.Laplacian()], engine)
    far = (x - x.new_tensor([0.3, -0.2])).norm(dim=1) > 0.05
    assert float(laplacian[far].detach().abs().max()) < 1e-6
    edge = torch.linspace(0.1, 1, 10, dtype=F64)[:, None] * torch.tensor([[1.0, 0.0]], dtype=F64)
    on_edges = torch.cat([edge, edge.flip(1) * -1]) + x.new_tensor([0.3, -0.2])
    assert float(feature(on_edges)[:, 0].abs().max()) < 1e-9
    (slope,) = dudx.evaluate(feature, on_edges[:10], [dudx.D(1)], engine)
    assert float(slope[:, 1].abs().max()) < 1e-6
    corner = dudx.evaluate(feature, x.new_tensor([[0.3, -0.2]]), [dudx.D(), dudx.D(0)], engine)
    assert all(bool(values.isfinite().all()) for values in corner)


def exact(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """r^⅔ sin(⅔θ), with θ from 0 to 3π/2 in the L-shape."""
    angle = torch.atan2(y, x)
    angle = torch.where(angle < -math.pi / 4, angle + 2 * math.pi, angle)
    return (x * x + y * y) ** (1 / 3) * torch.sin(2 * angle / 3)


def test_a_corner_is_resolved_by_itself(capsys: pytest.CaptureFixture[str]) -> None:
    problem = Problem(lambda u: u.xx + u.yy, ("x", "y"), L_SHAPE, [Dirichlet(u=exact)])
    assert make_settings(problem, "auto").network == "featured"
    tiny: dict[str, Any] = {"epochs": 40, "width": 10, "depth": 2, "batch": 200, "minutes": 10, "windows": False}
    errors = []
    for network in ("featured", "mlp"):
        solution = solve(problem, network=network, quiet=network == "mlp", **tiny)
        errors.append(solution.error(exact))
    assert errors[0] < 1e-3 < 1e-2 < errors[1] * 3
    assert "re-entrant corners (0, 0)" in capsys.readouterr().err


def test_features_that_are_given_or_useless_are_not_added() -> None:
    def network(domain: Any, *conditions: Any, **more: Any) -> str:
        problem = Problem(lambda u: u.xx + u.yy, ("x", "y"), domain, [*conditions], **more)
        return make_settings(problem, "auto").network

    assert network(SQUARE, Dirichlet(u=0.0)) == "mlp"
    assert network(L_SHAPE, Dirichlet(u=0.0)) == "featured"
    holes = SQUARE - Box((-0.5, -0.5), (0.5, 0.5))
    assert network(holes, Periodic("x"), Neumann(u=0.0, on=["top", "bottom"])) == "mlp"
    own = Problem(
        lambda u: u.xx + u.yy, ("x", "y"), L_SHAPE, [Dirichlet(u=0.0)],
        features=lambda: dudx.lab.Features(dudx.lab.Coordinates([0, 1])),
    )  # fmt: skip
    assert own.singular_corners == ()
    made = own.known_features()
    assert made is not None
    assert made.columns == 2


def test_corners_that_cannot_be_are_refused() -> None:
    for arguments in (((0,), (1, 0), 5.0), ((0, 0), (0, 0), 5.0), ((0, 0), (1, 0), 7.0), ((0, 0), (1, 0), 0.0)):
        with pytest.raises(InputError, match="A corner has two coordinates"):
            CornerFeature(*arguments)  # type: ignore[arg-type]
