import math
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.linalg import expm

from dudx.errors import InputError
from dudx.lab.problems.geometry import Circle, Domain
from dudx.lab.problems.references import DATA, FORMULAS, STORED, Reference, burgers_reference, reference

every_name = pytest.mark.parametrize("name", [*FORMULAS, *STORED])


@pytest.fixture(scope="module")
def solutions() -> dict[str, Reference]:
    return {name: reference(name) for name in (*FORMULAS, *STORED)}


def inside(domain: Domain, n: int) -> np.ndarray:
    return domain.sobol(n, seed=1, dtype=torch.float64).numpy()


@every_name
def test_values_have_one_column_and_agree_with_the_scored_ones(name: str, solutions: dict[str, Reference]) -> None:
    solution = solutions[name]
    n, d = solution.points.shape
    assert solution.name == name
    assert d == solution.domain.dimension
    assert solution.values.shape == (n, 1)
    assert np.isfinite(solution.values).all()
    some = np.random.default_rng(0).choice(n, 5000, replace=False)
    np.testing.assert_allclose(solution(solution.points[some]), solution.values[some], rtol=0, atol=1e-12)
    assert solution(solution.points[:0]).shape == (0, 1)


@every_name
def test_points_on_the_boundary_may_be_rounded_to_single_precision(name: str, solutions: dict[str, Reference]) -> None:
    solution = solutions[name]
    points = solution.domain.sample_boundary(5000, torch.Generator().manual_seed(0))[0].numpy()
    assert np.isfinite(solution(points)).all()


@every_name
def test_points_outside_are_refused_by_row(name: str, solutions: dict[str, Reference]) -> None:
    solution = solutions[name]
    points = solution.points[:10].copy()
    points[7, 0] = 20
    with pytest.raises(InputError, match=r"Row 7 of the points, \(20.0"):
        solution(points)
    points[3, 0] = math.nan
    with pytest.raises(InputError, match="Row 3"):
        solution(points)
    with pytest.raises(InputError, match=r"shape \(N, "):
        solution(points[:, :1])
    with pytest.raises(InputError, match="got shape"):
        solution(points[0])


def test_holes_are_outside(solutions: dict[str, Reference]) -> None:
    with pytest.raises(InputError, match="Row 1"):
        solutions["poisson"]([[0, 0], [0.3, -0.3]])
    with pytest.raises(InputError, match="Row 0"):
        solutions["heat"]([[-4, 9, 1]])
    with pytest.raises(InputError, match="Row 0"):
        solutions["heat"]([[2, 2, 3.1]])


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean 'poisson'"):
        reference("poison")


# ---------------------------------------------------------------- Burgers


def by_the_trapezoidal_rule(x: float, t: float) -> float:
    """Cole–Hopf with the plainest of quadratures, which converges exponentially for such integrands."""
    z = np.linspace(-25, 25, 40_001)
    y = math.pi * (x - 2 * math.sqrt(burgers_reference.NU * t) * z)
    exponent = -np.cos(y) / (2 * math.pi * burgers_reference.NU) - z**2
    density = np.exp(exponent - exponent.max())
    return -float(density @ np.sin(y) / density.sum())


def test_burgers_agrees_with_an_independent_quadrature(solutions: dict[str, Reference]) -> None:
    generator = np.random.default_rng(0)
    smooth = np.stack([generator.uniform(-1, 1, 150), generator.uniform(0, 1, 150)], axis=1)
    at_the_shock = np.stack([generator.normal(0, 0.01, 150), generator.uniform(0.2, 1, 150)], axis=1)
    points = np.concatenate([smooth, at_the_shock])
    expected = [by_the_trapezoidal_rule(x, t) for x, t in points]
    np.testing.assert_allclose(solutions["burgers"](points)[:, 0], expected, rtol=0, atol=1e-12)


def test_burgers_solves_its_equation(solutions: dict[str, Reference]) -> None:
    u = solutions["burgers"]
    x, t = inside(u.domain, 500).T * np.array([[0.99], [0.99]]) + np.array([[0], [0.005]])
    away = np.abs(x) > 0.1  # differences are too coarse for the shock
    x, t, step = x[away], t[away], 1e-4

    def at(i: int, j: int) -> np.ndarray:
        return u(np.stack([x + i * step, t + j * step], axis=1))[:, 0]

    u_t, u_x = (at(0, 1) - at(0, -1)) / (2 * step), (at(1, 0) - at(-1, 0)) / (2 * step)
    u_xx = (at(1, 0) - 2 * at(0, 0) + at(-1, 0)) / step**2
    assert np.abs(u_t + at(0, 0) * u_x - burgers_reference.NU * u_xx).max() < 1e-5


def test_burgers_starts_as_a_sine_and_is_odd(solutions: dict[str, Reference]) -> None:
    u, x = solutions["burgers"], np.linspace(-1, 1, 101)
    start = np.stack([x, np.zeros(101)], axis=1)
    np.testing.assert_allclose(u(start)[:, 0], -np.sin(math.pi * x), rtol=0, atol=1e-15)
    later = np.stack([x, np.full(101, 0.7)], axis=1)
    np.testing.assert_allclose(u(later), -u(later * [-1, 1]), rtol=0, atol=1e-13)
    assert np.abs(u([[-1, 0.5], [1, 0.5]])).max() < 1e-12


def test_the_nodes_of_the_quadrature_are_enough() -> None:
    points = burgers_reference.scored_points()
    truth = burgers_reference.cole_hopf(points)
    few, many = (burgers_reference.cole_hopf(points, nodes) for nodes in (20, 70))
    # Known values: 20 nodes are 5.6 % wrong, 100 have converged.
    assert np.linalg.norm(few - truth) / np.linalg.norm(truth) == pytest.approx(0.056, abs=0.005)
    assert np.linalg.norm(many - truth) / np.linalg.norm(truth) < 1e-11


# ---------------------------------------------------------------- Poisson


def test_poisson_holds_its_boundary_values_and_stays_between_them(solutions: dict[str, Reference]) -> None:
    u = solutions["poisson"]
    assert u.values.min() >= -1e-12
    assert u.values.max() <= 1 + 1e-12
    for piece in u.domain.pieces:
        points = piece.sample(500, torch.Generator().manual_seed(0), dtype=torch.float64)[0].numpy()
        expected = 0 if isinstance(piece.surface, Circle) else 1
        np.testing.assert_allclose(u(points), expected, rtol=0, atol=2e-5)


def test_poisson_is_harmonic(solutions: dict[str, Reference]) -> None:
    u = solutions["poisson"]
    points = inside(u.domain, 400)
    depth = -u.domain.signed_distance(torch.from_numpy(points)).numpy()
    angle = 2 * math.pi * np.arange(64) / 64
    # The mean over any circle in the domain is the value at its center.
    circle = 0.9 * depth[:, None, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    around = u((points[:, None] + circle).reshape(-1, 2)).reshape(-1, 64)
    np.testing.assert_allclose(around.mean(axis=1), u(points)[:, 0], rtol=0, atol=5e-5)


# ---------------------------------------------------------------- heat


def test_heat_is_cold_at_first_and_never_colder(solutions: dict[str, Reference]) -> None:
    u = solutions["heat"]
    assert u.values.min() == 0
    assert not u.values[u.points[:, 2] == 0].any()
    # No place is warmer than the warmest boundary would make it in the end.
    assert u.values.max() < 5.0
    assert len(np.unique(u.points[:, 2])) == 31


def around_one_hole(radius: float, source: float, t: float, n: int = 500) -> tuple[np.ndarray, np.ndarray]:
    """Distances from a hole and the temperatures there, were it alone: finite volumes in r, exact in time."""
    r = radius + np.linspace(0, 2, n)
    faces = np.concatenate([[radius], (r[1:] + r[:-1]) / 2, [r[-1]]])
    volume = np.diff(faces**2) / 2
    conduction = faces[1:-1] / np.diff(r)
    flow = np.diag(np.append(conduction, 0) + np.append(0, conduction))
    flow -= np.diag(conduction, 1) + np.diag(conduction, -1)
    flow[0, 0] += radius
    rate = -flow / volume[:, None]
    heating = np.zeros(n)
    heating[0] = radius * source / volume[0]
    return r - radius, np.linalg.solve(rate, (expm(rate * t) - np.eye(n)) @ heating)


@pytest.mark.parametrize(("x", "y", "radius", "source"), [(4, 3, 1.0, 5.0), (-4, 9, 1.0, 5.0), (-3.2, -6, 0.4, 1.0)])
def test_holes_warm_their_surroundings_as_if_alone_at_first(
    x: float, y: float, radius: float, source: float, solutions: dict[str, Reference]
) -> None:
    t = 0.05
    distance, expected = around_one_hole(radius, source, t)
    near = distance < 0.7  # farther away the next hole is felt
    angle = 2 * math.pi * np.arange(8)[:, None] / 8
    reach = radius + distance[near]
    points = np.stack([x + reach * np.cos(angle), y + reach * np.sin(angle), np.full((8, len(reach)), t)], axis=2)
    found = solutions["heat"](points.reshape(-1, 3)).reshape(8, -1)
    assert found[:, 0].min() > 0
    truth = np.tile(expected[near], (8, 1))
    assert np.linalg.norm(found - truth) < 1e-3 * np.linalg.norm(truth)


@pytest.mark.parametrize("name", ["poisson", "heat"])
def test_both_axes_are_axes_of_symmetry(name: str, solutions: dict[str, Reference]) -> None:
    points = solutions[name].points[::97]
    for flip in ((-1, 1, 1), (1, -1, 1), (-1, -1, 1)):
        flipped = points * np.array(flip[: points.shape[1]])
        np.testing.assert_array_equal(solutions[name](points), solutions[name](flipped))


# ---------------------------------------------------------------- files


def test_all_shipped_arrays_are_small() -> None:
    assert sum(path.stat().st_size for path in DATA.iterdir()) < 3 * 10**6


@pytest.mark.parametrize("fault", ["missing", "cut short", "garbled", "empty", "foreign"])
def test_a_file_that_cannot_be_used_names_the_remedy(fault: str, tmp_path: Path) -> None:
    path, content = tmp_path / "heat.npz", (DATA / "heat.npz").read_bytes()
    if fault == "cut short":
        path.write_bytes(content[: len(content) // 2])
    elif fault == "garbled":
        path.write_bytes(content[:200_000] + bytes(100_000) + content[300_000:])
    elif fault == "empty":
        path.write_bytes(b"")
    elif fault == "foreign":
        np.savez(path, something=np.zeros(3))
    kind = "missing" if fault == "missing" else "damaged"
    with pytest.raises(
        InputError, match=f"is {kind}; install dudx again, .* reproduction.references heat --rebuild'"
    ) as caught:
        reference("heat", tmp_path)
    assert "\n" not in str(caught.value)
