"""Error bars of unknown constants, against least squares with the exact solution; and refits."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from dudx.errors import InputError
from dudx.lab import Data, Dirichlet, Initial, Interval, Problem, Solution, make_settings, refits, solve

TIMES = np.linspace(0.05, 2, 24)
TINY: dict[str, Any] = {"width": 8, "depth": 2, "batch": 80, "minutes": 10, "quiet": True}


def decay(values: np.ndarray | float, guess: float = 1.0, **more: Any) -> Problem:
    """u' = -k u + s from u(0) = a with a known."""
    return Problem(
        lambda u, k, s: u.t + k * u - s,
        ("t",),
        Interval(0, 2),
        [Initial(u=2.0), Data(TIMES, u=values)],
        unknowns={"k": guess, "s": 0.0},
        **more,
    )


def exact(k: float, s: float) -> np.ndarray:
    return s / k + (2 - s / k) * np.exp(-k * TIMES)


def noisy(seed: int = 0) -> np.ndarray:
    return exact(1.3, 0.4) + 0.03 * np.random.default_rng(seed).standard_normal(len(TIMES))


@pytest.fixture(scope="module")
def solved() -> Solution:
    return solve(decay(noisy()), epochs=60, **TINY)


def test_the_errors_are_those_of_least_squares_with_the_exact_solution(solved: Solution) -> None:
    found = solved.unknowns
    k, s = (found[name].value for name in ("k", "s"))
    step = 1e-6
    slopes = np.stack([(exact(k + step, s) - exact(k - step, s)), (exact(k, s + step) - exact(k, s - step))], axis=1)
    slopes /= 2 * step
    left = exact(k, s) - noisy()
    assert np.abs(slopes.T @ left).max() < 2e-3  # k and s are the least-squares fit
    covariance = np.linalg.inv(slopes.T @ slopes) * (left @ left) / (len(TIMES) - 2)
    assert [c.error for c in found.values()] == pytest.approx(np.sqrt(np.diag(covariance)), rel=0.02)
    correlation = covariance[0, 1] / math.sqrt(covariance[0, 0] * covariance[1, 1])
    assert found.correlation[0, 1] == pytest.approx(correlation, abs=0.01)
    assert np.diag(found.correlation) == pytest.approx([1, 1])
    assert found.noise["data"] == pytest.approx(math.sqrt(left @ left / (len(TIMES) - 2)), rel=0.02)
    for name, constant in found.items():
        assert constant.trained == solved.result["unknowns"][name]
        assert constant.low < constant.value < constant.high
        assert constant.high - constant.value == pytest.approx(
            2.074 * constant.error, rel=1e-3
        )  # 22 degrees of freedom
    assert str(found).startswith("k = ")


def test_the_network_is_left_as_it_was(solved: Solution) -> None:
    before = [parameter.clone() for parameter in solved.network.parameters()]
    del solved.__dict__["unknowns"]
    assert solved.unknowns["k"].error > 0
    assert all(torch.equal(a, b) for a, b in zip(before, solved.network.parameters(), strict=True))
    assert all(parameter.grad is None for parameter in solved.network.parameters())


def test_a_constant_that_training_has_not_found_is_reported_beside_the_least_squares_value() -> None:
    solution = solve(decay(exact(1.3, 0.4), guess=0.2), epochs=60, **TINY)
    assert all(constant.converged for constant in solution.unknowns.values())
    away = Solution(solution.problem, solution.network, solution.settings, {"unknowns": {"k": 1.2, "s": 0.4}})
    k = away.unknowns["k"]
    assert not k.converged
    assert k.value == pytest.approx(1.3, rel=0.03)
    assert "training ended at 1.2" in str(k)


def test_error_bars_need_more_measurements_than_constants() -> None:
    two = Problem(
        lambda u, k, s: u.t + k * u - s, ("t",), Interval(0, 2), [Initial(u=2.0), Data([0.5, 1.0], u=[1.0, 0.8])],
        unknowns={"k": 1.0, "s": 0.0},
    )  # fmt: skip
    solution = solve(two, epochs=2, **TINY)
    with pytest.raises(InputError, match="2 measurements for 2 constants"):
        _ = solution.unknowns
    plain = Problem(lambda u: u.t + u, ("t",), Interval(0, 2), [Initial(u=2.0)])
    network = torch.nn.Linear(1, 1).double()
    with pytest.raises(InputError, match="no unknown constants"):
        _ = Solution(plain, network, make_settings(plain, "auto"), {}).unknowns


def test_solve_prints_the_errors(capsys: pytest.CaptureFixture[str]) -> None:
    solve(decay(noisy()), epochs=3, **{**TINY, "quiet": False})
    said = capsys.readouterr().err
    assert "k = " in said
    assert " ± " in said


def test_refits_differ_by_their_measurements() -> None:
    found = refits(decay(noisy()), 3, epochs=40, **TINY)
    values = [one.result["unknowns"]["k"] for one in found]
    assert len(set(values)) == 3
    assert [one.settings.seed for one in found] == [0, 1, 2]
    spread = np.std(values, ddof=1)
    assert 0.005 < spread < 0.5
    assert all(len(one.problem.conditions.data[0].points) == len(TIMES) for one in found)
    assert len({tuple(one.problem.conditions.data[0].points[:, 0].tolist()) for one in found}) == 3
    # A solution keeps its own constants, although the problems share them.
    assert found[0].evaluate(lambda k, t: k + 0 * t, [1.0])[0, 0] == pytest.approx(values[0], rel=1e-15)


def test_refits_with_the_data_as_it_is_differ_by_their_seeds() -> None:
    one, other = refits(decay(noisy()), 2, resample=False, seed=4, epochs=2, **TINY)
    assert (one.settings.seed, other.settings.seed) == (4, 5)
    assert torch.equal(one.problem.conditions.data[0].points, other.problem.conditions.data[0].points)
    with pytest.raises(InputError, match="number of solutions"):
        refits(decay(noisy()), 0)
    with pytest.raises(InputError, match=r"dudx\.lab\.Problem"):
        refits(Dirichlet(u=0.0))  # type: ignore[arg-type]
