"""Features against autograd and by what they promise: symmetry, finite values at the edge, hard values."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from operator import add
from pathlib import Path

import pytest
import torch
from helpers import DIFFERENCE, EXACT
from torch import Tensor

import dudx
from dudx.errors import InputError
from dudx.lab import features
from dudx.lab.features import (
    BoundaryFactor,
    Coordinates,
    CornerFeature,
    DiffusionFront,
    EvenFeatures,
    Feature,
    Features,
    FlatWall,
    FourierFeatures,
    HardConstraint,
    LogDistance,
    PeriodicFeatures,
    RoundWall,
    SmoothSqrt,
    WallDistance,
    mirrored_walls,
)
from dudx.lab.problems import problem
from dudx.lab.run.networks.featured import FeaturedMLP
from dudx.lab.run.settings import make_settings
from dudx.lab.run.training import train
from dudx.optim import jacobian

HOLES = [mirrored_walls(RoundWall((0.5, 0.25), 0.125)), [RoundWall((0.0, 0.0), 0.1)]]
EDGES = [FlatWall(0, -1.0, 1), FlatWall(0, 1.0, -1), FlatWall(1, 1.0, -1)]
#: A new feature is tested by being added here; columns are x, y and t.
CASES: dict[str, Callable[[], Feature]] = {
    "coordinates": lambda: Coordinates([1, 2]),
    "even": lambda: EvenFeatures(0, 0.5),
    "periodic": lambda: PeriodicFeatures(0, 2.0, harmonics=2),
    "fourier": lambda: FourierFeatures([0, 1], waves=3, scale=2.0),
    "root": lambda: SmoothSqrt(2),
    "distance": lambda: WallDistance([*HOLES, EDGES]),
    "logarithm": lambda: LogDistance(HOLES),
    "front": lambda: DiffusionFront([*HOLES, EDGES], time=2, flux=True),
    "boundary": lambda: BoundaryFactor([*HOLES[0], *EDGES]),
    "corner": lambda: CornerFeature((1.5, 1.5), (-1, -1), 1.5 * math.pi),
}
#: Operators as sums of derivatives along these axes.
AXES = [[()], [(0,)], [(2,)], [(0, 1)], [(0, 0), (1, 1)], [(1, 2)]]
OPERATORS = [reduce(add, (dudx.D(*axes) for axes in parts)) for parts in AXES]


@pytest.fixture(autouse=True)
def double():
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


def space_time(count: int = 15, seed: int = 0) -> Tensor:
    """Points outside the holes, a fifth of them at t = 0, some on a hole and some on an edge."""
    x = torch.rand(8 * count, 3, generator=torch.Generator().manual_seed(seed)) * 2 - 1
    x = x[(WallDistance([[wall] for group in HOLES for wall in group])(x) > 0.02).all(dim=1)][:count]
    x[:, 2] = x[:, 2].abs()
    x[: count // 5, 2] = 0.0
    x[0, :2] = torch.tensor([0.5, 0.375])
    x[1, :2] = torch.tensor([1.0, -0.2])
    x[count // 5, :2] = torch.tensor([0.625, 0.25])
    return x


def test_all_are_tested() -> None:
    exported = {getattr(features, name) for name in features.__all__}
    kinds = {kind for kind in exported if isinstance(kind, type) and issubclass(kind, Feature)} - {Feature}
    assert {type(make()) for make in CASES.values()} == kinds


@pytest.mark.parametrize("name", CASES)
def test_derivatives_against_autograd(name: str) -> None:
    feature, x = CASES[name](), space_time()
    assert feature(x).shape == (len(x), feature.columns)
    expected = row_by_row(feature, x)
    for engine in (dudx.AD(), dudx.Taylor(), dudx.PerSampleAD()):
        for found, exact in zip(dudx.evaluate(feature, x, OPERATORS, engine), expected, strict=True):
            assert found.isfinite().all()
            # Relative to the largest: at t = 0 the root's derivatives are thousands, and rounding is relative to them.
            torch.testing.assert_close(found, exact, rtol=1e-9, atol=1e-11 * float(exact.abs().max() + 1))


def row_by_row(feature: Feature, x: Tensor) -> list[Tensor]:
    """All operators by forward-mode derivatives of each row by itself, which share no code with the engines."""

    def at(point: Tensor) -> Tensor:
        return feature(point[None])[0]

    first = torch.func.jacfwd(at)
    found = [(at(point), first(point), torch.func.jacfwd(first)(point)) for point in x]
    totals = []
    for parts in AXES:
        rows = [torch.stack([by_order[len(axes)][(slice(None), *axes)] for axes in parts]).sum(0) for by_order in found]
        totals.append(torch.stack(rows))
    return totals


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("engine", DIFFERENCE)
def test_finite_differences_step_over_the_edge(name: str, engine: str) -> None:
    """Away from t = 0 they converge to the derivative; at t = 0 they step before the start, and stay finite."""
    feature, x = CASES[name](), space_time()
    wanted = [dudx.D(2), dudx.D(0, 0) + dudx.D(1, 1)]
    with torch.no_grad():
        found = dudx.evaluate(feature, x, wanted, DIFFERENCE[engine](1e-3, 2))
        exact = dudx.evaluate(feature, x, wanted, dudx.Taylor())
    later = x[:, 2] > 0.1
    for difference, derivative in zip(found, exact, strict=True):
        assert difference.isfinite().all()
        scale = float(derivative[later].abs().max()) + 1
        # Second order at a step of 1e-3, times fourth derivatives of 6 / r⁴ at the small hole, r ≥ 0.12.
        assert float((difference - derivative)[later].abs().max()) < 2e-2 * scale


@pytest.mark.parametrize("engine", ["AD", "Taylor", *DIFFERENCE])
def test_each_sample_s_gradient(engine: str) -> None:
    """The Jacobian of the heat problem's equation, with all it has of features, against autograd row by row."""
    heat = problem("heat")
    torch.manual_seed(0)
    assert heat.features is not None
    assert heat.hard is not None
    model = FeaturedMLP(3, 1, width=5, depth=2, features=heat.features(), hard=heat.hard())
    x = heat.domain.sobol(6, dtype=torch.float64)
    x[0, 2] = 0.0
    made = EXACT[engine] if engine in EXACT else DIFFERENCE[engine](1e-4, 2)
    values, rows = jacobian(heat.residual, model, x, made)
    for number in range(len(x)):
        exact = heat.residual(model, x[number : number + 1], dudx.AD())
        gradient = torch.autograd.grad(exact.sum(), list(model.parameters()))
        expected = torch.cat([part.flatten() for part in gradient])
        # Differences with random steps differ in their error; a hundredth is far from any confusion of columns.
        tolerance = 1e-9 if engine in EXACT else 1e-2
        assert float((values[number] - exact).detach().abs()) <= tolerance * (1 + float(exact.detach().abs()))
        assert float((rows[number] - expected).abs().max()) <= tolerance * (1 + float(expected.abs().max()))


def test_symmetries() -> None:
    x = space_time()
    flipped = x * torch.tensor([-1.0, 1.0, 1.0])
    for feature in (
        EvenFeatures(0),
        LogDistance([HOLES[0]]),
        DiffusionFront([HOLES[0]], time=2),
        PeriodicFeatures(0, 2.0, even=True),
    ):
        torch.testing.assert_close(feature(flipped), feature(x))
    shifted = x + torch.tensor([2.0, 0.0, 0.0])
    torch.testing.assert_close(PeriodicFeatures(0, 2.0, harmonics=3)(shifted), PeriodicFeatures(0, 2.0, harmonics=3)(x))


def test_images_of_a_wall_are_counted_once() -> None:
    assert len(mirrored_walls(RoundWall((4.0, 3.0), 1.0))) == 4
    assert len(mirrored_walls(RoundWall((0.0, 6.0), 1.0))) == 2
    assert mirrored_walls(RoundWall((0.0, 0.0), 1.0)) == [RoundWall((0.0, 0.0), 1.0)]


def test_walls_of_both_kinds_in_any_order() -> None:
    x = torch.tensor([[0.25, 0.5]])
    groups = [
        [FlatWall(0, 1.0, -1)],
        [RoundWall((0.25, 0.0), 0.125)],
        [FlatWall(1, 0.0, 1), RoundWall((0.25, 1.0), 0.25)],
    ]
    torch.testing.assert_close(WallDistance(groups)(x), torch.tensor([[0.75, 0.375, 0.75]]))


def test_the_root_of_time() -> None:
    t = torch.tensor([[0.0], [0.25], [1.0], [4.0]])
    root = SmoothSqrt(0, soft=1e-4)(t)
    assert float(root[0].abs()) < 1e-15
    # Beyond the start it is √t less a constant, to (soft / t)².
    torch.testing.assert_close(root - root[2] + 1, t.sqrt(), rtol=0, atol=math.sqrt(1e-4))
    torch.testing.assert_close((root - root[2] + 1)[1:], t.sqrt()[1:], rtol=0, atol=1e-7)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_nothing_is_singular_far_before_the_start(dtype: torch.dtype) -> None:
    """Steps of finite differences are tried up to some units of time."""
    t = torch.tensor([[-2.0], [-1e-3], [0.0], [1e-3], [2.0]], dtype=dtype)
    x = torch.cat([torch.full_like(t, 0.3), torch.full_like(t, 0.8), t], dim=1)
    for feature in (SmoothSqrt(2), DiffusionFront(HOLES, time=2, flux=True).to(dtype)):
        for found in dudx.evaluate(feature, x, [dudx.D(), dudx.D(2), dudx.D(2, 2)], dudx.Taylor()):
            assert found.isfinite().all()
    slopes = dudx.evaluate(SmoothSqrt(2), x, dudx.D(2), dudx.Taylor())
    assert (slopes > 0).all()


@pytest.mark.parametrize("engine", ["taylor", "efd"])
def test_a_run_with_features(engine: str, tmp_path: Path) -> None:
    torch.set_default_dtype(torch.float32)
    settings = make_settings("heat", "smoke", network="featured", engine=engine, epochs=2)
    assert train(settings, tmp_path / "run")["status"] == "finished"


def test_the_front_is_a_solution_of_the_heat_equation() -> None:
    """erfc(d / 2√t) and the profile of a flux solve u_t = u_xx at a flat wall, as soon as √t is not smoothed."""
    x = torch.stack([torch.linspace(0, 2, 9), torch.linspace(0.5, 1.5, 9)], dim=1)
    front = DiffusionFront([[FlatWall(0, 0.0, 1)]], time=1, soft=1e-6, flux=True)
    assert float(dudx.evaluate(front, x, dudx.D(1) - dudx.D(0, 0), dudx.Taylor()).abs().max()) < 1e-9
    torch.testing.assert_close(dudx.evaluate(front, x[:1], dudx.D(0), dudx.Taylor())[0, 1], torch.tensor(-0.5))


def test_logarithms_are_harmonic() -> None:
    found = dudx.evaluate(LogDistance(HOLES), space_time(), dudx.Laplacian(axes=(0, 1)), dudx.Taylor())
    assert float(found.abs().max()) < 1e-10


def test_scaling() -> None:
    x = space_time(200)
    together = Features(*(make() for make in CASES.values()), at=x)
    assert together(x).shape == (200, together.columns)
    torch.testing.assert_close(together(x).mean(0), torch.zeros(together.columns), rtol=0, atol=1e-12)
    torch.testing.assert_close(together(x).std(0, correction=0), torch.ones(together.columns))


def test_hard_values() -> None:
    walls = [*HOLES[0], *EDGES]
    hard = HardConstraint(SmoothSqrt(2), BoundaryFactor(walls), value=lambda x: torch.sin(x[:, 0:1]))
    model = FeaturedMLP(3, 1, width=4, depth=1, features=Features(Coordinates([0, 1, 2])), hard=hard)
    x = space_time()
    on_wall = torch.tensor([[0.5, 0.375, 0.7], [1.0, -0.2, 0.4], [-1.0, 0.3, 1.0]])
    at_start = x[x[:, 2] == 0]
    for held in (on_wall, at_start):
        torch.testing.assert_close(model(held), torch.sin(held[:, 0:1]))
    later = x[4:]  # not on a wall, not at the start
    assert float((model(later) - torch.sin(later[:, 0:1])).detach().abs().min()) > 0


def test_heat_is_even_and_cold_at_first() -> None:
    heat = problem("heat")
    assert heat.features is not None
    assert heat.hard is not None
    model = FeaturedMLP(3, 1, 6, 2, features=heat.features(), hard=heat.hard())
    x = heat.domain.sobol(50, dtype=torch.float64)
    for flip in ([-1.0, 1.0, 1.0], [1.0, -1.0, 1.0]):
        torch.testing.assert_close(model(x * torch.tensor(flip)), model(x), rtol=1e-10, atol=1e-10)
    x[:, 2] = 0
    assert float(model(x).detach().abs().max()) < 1e-14


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Features(), "at least one feature"),
        (lambda: Features(Coordinates(0), at=torch.zeros(4, 2)), "is constant"),
        (lambda: Coordinates([]), "numbers of columns"),
        (lambda: EvenFeatures(0, length=0), "length of a feature must be positive"),
        (lambda: PeriodicFeatures(0, 1.0, harmonics=0), "1 or more"),
        (lambda: FourierFeatures(0, waves=0), "1 or more"),
        (lambda: LogDistance([[FlatWall(0, 1.0, 1)]]), "must be Round"),
        (lambda: WallDistance([["a wall"]]), "Round"),  # type: ignore[list-item]
        (lambda: WallDistance([[RoundWall((0, 0), 1), RoundWall((0, 0, 0), 1)]]), "equally many coordinates"),
        (lambda: HardConstraint(), "at least one factor"),
        (lambda: HardConstraint(EvenFeatures(0)), "of one column"),
    ],
)
def test_what_is_not_right_is_said(make: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()
