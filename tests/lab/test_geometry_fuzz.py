"""Random shapes far from the origin, tiny, thin, rotated and touching; random conditions on random pieces of boundary.

The reference is a slow one at the origin, in size 1: curves cut into short parts, and set logic in numpy.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from dudx.errors import InputError
from dudx.lab import Box, Dirichlet, Disc, Interval, Neumann, Polygon, Problem
from dudx.lab.problems.geometry import Shape

F64 = torch.float64
#: Size and distance from the origin, both in multiples of a shape of size 1.
PLACES = [(1.0, 0.0), (1e-6, 0.0), (1e6, 0.0), (1.0, 5e5), (100.0, 4e4), (1e-3, 1e6), (10.0, -4e6)]
SEEDS = range(12)


@dataclass
class Reference:
    """A shape of size about 1: how it is made at a scale and an offset, and curves and set logic in numpy."""

    make: Callable[[float, float], Shape]
    inside: Callable[[np.ndarray], np.ndarray]
    #: Each a function from parameters in [0, 1] to points (N, 2), and its length.
    curves: list[tuple[Callable[[np.ndarray], np.ndarray], float]]

    def __sub__(self, hole: Reference) -> Reference:
        return Reference(
            lambda s, o: self.make(s, o) - hole.make(s, o),
            lambda x: self.inside(x) & ~hole.inside(x),
            [*self.curves, *hole.curves],
        )

    def __or__(self, other: Reference) -> Reference:
        return Reference(
            lambda s, o: self.make(s, o) | other.make(s, o),
            lambda x: self.inside(x) | other.inside(x),
            [*self.curves, *other.curves],
        )

    def perimeter(self, parts: int = 40_000) -> float:
        """The length of the curves' parts with one side inside and the other one outside."""
        total, t = 0.0, (np.arange(parts) + 0.5) / parts
        for curve, length in self.curves:
            x, along = curve(t), curve(t + 1e-7) - curve(t - 1e-7)
            normal = np.stack([along[:, 1], -along[:, 0]], axis=1) / np.linalg.norm(along, axis=1, keepdims=True)
            step = 1e-7 * normal
            total += length * float((self.inside(x + step) != self.inside(x - step)).mean())
        return total


def disc(x: float, y: float, r: float) -> Reference:
    def circle(t: np.ndarray) -> np.ndarray:
        return np.stack([x + r * np.cos(2 * np.pi * t), y + r * np.sin(2 * np.pi * t)], axis=1)

    return Reference(
        lambda s, o: Disc((o + s * x, o + s * y), s * r),
        lambda p: (p[:, 0] - x) ** 2 + (p[:, 1] - y) ** 2 <= r**2,
        [(circle, 2 * math.pi * r)],
    )


def segments(corners: np.ndarray) -> list[tuple[Callable[[np.ndarray], np.ndarray], float]]:
    ends = np.roll(corners, -1, axis=0)

    def curve(a: np.ndarray, b: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        return lambda t: a + t[:, None] * (b - a)

    return [(curve(a, b), float(np.linalg.norm(b - a))) for a, b in zip(corners, ends, strict=True)]


def convex(corners: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """The inside of a convex polygon with corners in counter-clockwise order."""

    def inside(p: np.ndarray) -> np.ndarray:
        a, b = corners[:, None], np.roll(corners, -1, axis=0)[:, None]
        cross = (b - a)[..., 0] * (p - a)[..., 1] - (b - a)[..., 1] * (p - a)[..., 0]
        return (cross >= 0).all(axis=0)

    return inside


def box(low: tuple[float, float], high: tuple[float, float]) -> Reference:
    (a, b), (c, d) = low, high
    corners = np.array([(a, b), (c, b), (c, d), (a, d)])
    return Reference(
        lambda s, o: Box((o + s * a, o + s * b), (o + s * c, o + s * d)), convex(corners), segments(corners)
    )


def rectangle(length: float, width: float, angle: float) -> Reference:
    turn = np.array([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]])
    corners = np.array([(-length, -width), (length, -width), (length, width), (-length, width)]) / 2 @ turn
    return Reference(
        lambda s, o: Polygon(*((o + s * x, o + s * y) for x, y in corners.tolist())), convex(corners), segments(corners)
    )


def drawn(seed: int) -> Reference:
    """A random combination: cut, overlapping, thin, rotated or touching."""
    r = np.random.default_rng(seed)
    a, b = r.uniform(0.3, 0.7, 2)
    kind = seed % 6
    if kind == 0:  # small holes, some of which reach out of the box
        shape = box((0, 0), (1, 1))
        for x, y in r.uniform(0, 1, (3, 2)):
            shape = shape - disc(x, y, r.uniform(0.01, 0.15))
        return shape
    if kind == 1:
        return rectangle(1.0, 10 ** r.uniform(-3, 0), r.uniform(0, math.pi))
    if kind == 2:
        return (disc(a, b, 0.3) | box((0, 0), (a, b))) | rectangle(1.0, 0.2, r.uniform(0, math.pi))
    if kind == 3:  # a hole that touches two sides, and a box that continues another one
        return (box((0, 0), (1, 0.5)) | box((1, 0), (1.5, 0.25))) - disc(0.25, 0.25, 0.25)
    if kind == 4:
        return rectangle(1.2, 0.9, r.uniform(0, 3)) - rectangle(0.5, 10 ** r.uniform(-2.5, -0.5), r.uniform(0, 3))
    return (disc(0.5, 0.5, 0.5) - disc(0.5, 0.5, 10 ** r.uniform(-2, -0.5))) - box((a, -1), (a + 0.05, b))


@pytest.mark.parametrize("seed", SEEDS)
def test_shapes_are_the_same_at_any_size_and_place(seed: int) -> None:
    reference = drawn(seed)
    perimeter = reference.perimeter()
    for scale, distance in PLACES:
        offset = scale * distance
        shape = reference.make(scale, offset)
        # Surfaces that others cut are measured with 4096 points each.
        assert sum(piece.length for piece in shape.pieces) == pytest.approx(scale * perimeter, rel=2e-3)
        generator = torch.Generator().manual_seed(seed)
        points, normals, _ = shape.sample_boundary(2000, generator, dtype=F64)
        at = ((points - offset) / scale).numpy()
        # Far away coordinates are rounded by 1e-16 of the distance.
        step = max(1e-6, 1e-13 * abs(distance)) * normals.numpy()
        # A step from near a corner or a touching point may end on the other side there.
        assert (~reference.inside(at - 2 * step)).mean() < 5e-3
        assert reference.inside(at + 2 * step).mean() < 5e-3
        inside = shape.sample(500, generator, dtype=F64)
        assert shape.contains(inside).all()
        assert reference.inside(((inside - offset) / scale).numpy()).mean() > 0.99
        assert shape.lies_outside(points).sum() == 0


@pytest.mark.parametrize(("scale", "offset"), [(1000.0, 5e5), (1000.0, 4e6), (1e-3, 0.0)])
def test_a_small_hole_has_its_share_of_the_boundary_in_single_precision(scale: float, offset: float) -> None:
    plate = Box((offset, offset), (offset + scale, offset + scale))
    hole = Disc((offset + 0.3 * scale, offset + 0.6 * scale), 0.01 * scale)
    points, _, piece = (plate - hole).sample_boundary(20_000, torch.Generator().manual_seed(0))
    share = 0.02 * math.pi / (4 + 0.02 * math.pi)
    on_hole = torch.bincount(piece, minlength=5)[4] / len(piece)
    assert float(on_hole) == pytest.approx(share, rel=0.15)
    assert points.dtype == torch.float32


def test_single_precision_that_is_too_coarse_is_refused() -> None:
    far = Box((4e6, 0.0), (4e6 + 1, 1.0))
    for draw in (far.sample, far.sobol, far.sample_boundary, (far * Interval(0, 1)).sample_initial):
        with pytest.raises(InputError, match="measure coordinates from a corner"):
            draw(10)
    assert far.sample(10, dtype=F64).shape == (10, 2)


@pytest.mark.parametrize("offset", [0.0, 5e5, -4e6])
def test_periodicity_identifies_the_outer_faces_only(offset: float) -> None:
    from dudx.lab import Periodic

    domain = Box((offset, 0), (offset + 2, 1)) - Box((offset + 0.5, 0.2), (offset + 1, 0.8))
    problem = Problem(
        lambda u: u.xx + u.yy, ("x", "y"), domain, [Periodic("x"), Dirichlet(u=0.0, on=["top", "bottom", "holes"])]
    )
    (condition,) = problem.conditions
    x, _ = condition.sample(4000, torch.Generator().manual_seed(0), torch.device("cpu"), F64)
    outer = (x[:, 0] == offset) | (x[:, 0] == offset + 2)
    rim = (x[:, 1] > 0.1) & (x[:, 1] < 0.9)
    assert not outer.any()
    assert float(rim.double().mean()) == pytest.approx(2.2 / 6.2, abs=0.03)


# -- conditions ----------------------------------------------------------------------------------------------------

NAMES = {"left": (0, 0.0), "right": (0, 1.0), "bottom": (1, 0.0), "top": (1, 1.0)}


def selection(r: np.random.Generator, scale: float, offset: float) -> tuple[Any, Callable[[np.ndarray], np.ndarray]]:
    """A random `on`, and which points (in the unit square) of the boundary it stands for."""
    kind = r.integers(4)
    name = str(r.choice(list(NAMES)))
    axis, at = NAMES[name]
    on_face = lambda x: np.abs(x[:, axis] - at) < 1e-9  # noqa: E731
    if kind == 0:
        return name, on_face
    if kind == 1:
        return f"{'xy'[axis]}={offset + scale * at!r}", on_face
    if kind == 2:
        cut, above = r.uniform(0.2, 0.8), bool(r.integers(2))
        level = offset + scale * cut
        if above:
            return (lambda x: x > level), (lambda x: x[:, 0] > cut)
        return (lambda y: y < level), (lambda x: x[:, 1] < cut)
    hole = Disc((offset + 0.5 * scale, offset + 0.5 * scale), 0.2 * scale)
    return hole, lambda x: np.hypot(x[:, 0] - 0.5, x[:, 1] - 0.5) < 0.3


@pytest.mark.parametrize("seed", range(40))
def test_random_conditions_are_drawn_where_they_hold_or_refused(seed: int) -> None:
    r = np.random.default_rng(seed)
    scale, distance = PLACES[seed % len(PLACES)]
    offset = scale * distance
    plate = Box((offset, offset), (offset + scale, offset + scale)) - Disc(
        (offset + 0.5 * scale, offset + 0.5 * scale), 0.2 * scale
    )
    drawn_boundary = plate.sample_boundary(4000, torch.Generator().manual_seed(1), dtype=F64).points
    boundary = ((drawn_boundary - offset) / scale).numpy()
    chosen = [selection(r, scale, offset) for _ in range(r.integers(1, 4))]
    kinds = [Dirichlet if r.integers(2) else Neumann for _ in chosen]
    values = [float(r.integers(1, 3)) for _ in chosen]
    conditions = [kind(u=value, on=on) for kind, value, (on, _) in zip(kinds, values, chosen, strict=True)]
    plain = [not callable(on) or isinstance(on, Shape) for on, _ in chosen]
    masks = [mask(boundary) for _, mask in chosen]
    contradictory = any(
        kinds[i] is kinds[j]
        and bool((masks[i] & masks[j]).any())
        and (values[i] != values[j] or (plain[i] and plain[j]))
        for i in range(len(chosen))
        for j in range(i)
    )
    if contradictory:
        with pytest.raises(InputError, match="Two conditions give a value"):
            Problem(lambda u: u.xx + u.yy, ("x", "y"), plate, conditions)
        return
    problem = Problem(lambda u: u.xx + u.yy, ("x", "y"), plate, conditions)
    for kind, letter in ((Dirichlet, "g"), (Neumann, "g")):
        held = [i for i, one in enumerate(kinds) if one is kind]
        merged = [c for c in problem.conditions if ("n" in c.residual.data) == (kind is Neumann)]
        expected = np.zeros(len(boundary), bool)
        for i in held:
            expected |= masks[i]
        found = []
        for condition in merged:
            x, data = condition.sample(3000, torch.Generator().manual_seed(2), torch.device("cpu"), F64)
            at = ((x - offset) / scale).numpy()
            member = np.stack([chosen[i][1](at) for i in held])
            assert member.any(axis=0).all()
            g = data[letter].numpy()[:, 0]
            allowed = np.stack([np.where(m, values[i], np.nan) for i, m in zip(held, member, strict=True)])
            assert (g == allowed).any(axis=0).all()
            found.append(at)
        if len(merged) == 1:  # uniform by length over all of it
            rim = lambda p: np.hypot(p[:, 0] - 0.5, p[:, 1] - 0.5) < 0.3  # noqa: E731
            assert rim(found[0]).mean() == pytest.approx(rim(boundary[expected]).mean(), abs=0.05)
