"""Conditions on the flux that hold by construction."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from stated import F64

import dudx
from dudx.errors import InputError
from dudx.lab import Box, Dirichlet, Disc, Initial, Interval, Neumann, Problem, Robin, make_settings, solve
from dudx.lab.run.trained_networks import make_network

SQUARE = Box((0.5, -1), (2, 3))


def g(y: Any) -> Any:
    return torch.sin(y)


#: Conditions on u, and what holds then at x = 0.5 and x = 2: coefficients of u, of ∂u/∂n, and the value.
CASES: dict[str, tuple[list[Any], list[tuple[float, float, float, Any]]]] = {
    "neumann": ([Neumann(u=g, on="left", hard=True)], [(0.5, 0.0, 1.0, g)]),
    "upper": ([Neumann(u=2.0, on="right", hard=True)], [(2.0, 0.0, 1.0, 2.0)]),
    "robin": ([Robin(a=3.0, g=g, on="left", hard=True)], [(0.5, 3.0, 1.0, g)]),
    "two neumann": ([Neumann(u=0.0, on=["left", "right"], hard=True)], [(0.5, 0.0, 1.0, 0.0), (2.0, 0.0, 1.0, 0.0)]),
    "two robin": (
        [Robin(a=3.0, g=g, on="left", hard=True), Robin(a=lambda y: 1 + y * y, g=5.0, on="right", hard=True)],
        [(0.5, 3.0, 1.0, g), (2.0, 1.0, 1.0, 5.0)],
    ),
    "with a value": (
        [Neumann(u=g, on="left", hard=True), Dirichlet(u=lambda y: y * y, on="right", hard=True)],
        [(0.5, 0.0, 1.0, g), (2.0, 1.0, 0.0, lambda y: y * y)],
    ),
    "beside a value": (
        [Dirichlet(u=1.0, on="left", hard=True), Robin(a=2.0, g=1.0, on="right", hard=True)],
        [(0.5, 1.0, 0.0, 1.0), (2.0, 2.0, 1.0, 1.0)],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_conditions_hold_for_any_network(name: str) -> None:
    conditions, ends = CASES[name]
    problem = Problem(lambda u: u.xx + u.yy, ("x", "y"), SQUARE, conditions)
    network = make_network(problem, make_settings(problem, "smoke", spread=3.0)).double()
    y = torch.linspace(-1, 3, 23, dtype=F64)[:, None]
    for at, a, b, value in ends:
        if name == "two robin" and at == 2.0:
            a = 1 + y * y
        x = torch.cat([torch.full_like(y, at), y], dim=1)
        for engine in (dudx.AD(), dudx.Taylor()):
            u, u_x = dudx.evaluate(network, x, [dudx.D(), dudx.D(0)], engine)
            outward = u_x if at == 2.0 else -u_x
            wanted = value(y) if callable(value) else torch.full_like(y, value)
            assert torch.allclose(a * u + b * outward, wanted, atol=1e-10)


def test_a_function_that_fulfils_the_conditions_can_be_learned() -> None:
    """u = cos(x) exp(y): u_x = 0 at x = 0, and ∂u/∂n + a u = 0 at x = 1 with a = tan 1."""
    problem = Problem(
        lambda u: u.xx + u.yy,
        ("x", "y"),
        Box((0, 0), (1, 1)),
        [
            Neumann(u=0.0, on="left", hard=True),
            Robin(a=1.5574077246549023, g=0.0, on="right", hard=True),
            Dirichlet(u=lambda x: torch.cos(x), on="bottom"),
            Dirichlet(u=lambda x: 2.718281828459045 * torch.cos(x), on="top"),
        ],
    )
    assert [condition.name for condition in problem.conditions] == ["dirichlet"]
    solution = solve(problem, epochs=40, width=10, depth=2, batch=200, minutes=10, quiet=True)
    assert solution.error(lambda x, y: torch.cos(x) * torch.exp(y)) < 1e-4
    assert abs(solution.integral(lambda u, n: u.along(n), on="left").value) < 1e-10


def test_with_time_and_for_one_of_several_functions() -> None:
    problem = Problem(
        lambda u, v: (u.t - u.xx, v.t - v.xx),
        ("x", "t"),
        Interval(0, 1) * Interval(0, 2),
        [
            Neumann(u=lambda t: t, on="left", hard=True),
            Dirichlet(u=0.0, on="right"),
            Dirichlet(v=0.0, hard=True),
            Initial(u=0.0, v=0.0),
        ],
    )
    network = make_network(problem, make_settings(problem, "smoke", spread=3.0)).double()
    t = torch.linspace(0, 2, 9, dtype=F64)[:, None]
    x = torch.cat([torch.zeros_like(t), t], dim=1)
    values, slopes = dudx.evaluate(network, x, [dudx.D(), dudx.D(0)], dudx.Taylor())
    assert torch.allclose(-slopes[:, :1], t, atol=1e-10)
    assert float(values[:, 1].abs().max()) < 1e-12


@pytest.mark.parametrize(
    ("domain", "conditions", "sentence"),
    [
        (Disc((0, 0), 1), [Neumann(u=0.0, hard=True)], "outer faces of a box"),
        (SQUARE - Disc((1, 1), 0.2), [Neumann(u=0.0, on="holes", hard=True)], "outer faces of a box"),
        (SQUARE, [Neumann(u=0.0, hard=True)], "along one axis only"),
        (SQUARE, [Neumann(u=0.0, on="left", hard=True), Dirichlet(u=0.0, on="top", hard=True)], "along one axis only"),
        (SQUARE, [Neumann(u=0.0, on=lambda x: x < 0.6, hard=True)], "where a function is true"),
        (SQUARE, [Neumann(u_y=0.0, on="left", hard=True)], "cannot be imposed exactly"),
    ],
)
def test_geometries_that_do_not_allow_it_are_refused(domain: Any, conditions: list[Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        Problem(lambda u: u.xx + u.yy, ("x", "y"), domain, conditions)


def test_together_with_hard_initial_values_it_is_refused() -> None:
    with pytest.raises(InputError, match="together with initial values"):
        Problem(
            lambda u: u.t - u.xx, ("x", "t"), Interval(0, 1) * Interval(0, 1),
            [Neumann(u=0.0, hard=True), Initial(u=0.0, hard=True)],
        )  # fmt: skip


def test_a_flux_does_not_fix_the_value() -> None:
    sides = Neumann(u=0.0, on=["left", "right"], hard=True)
    only_fluxes = Problem(lambda u: u.xx + u.yy, ("x", "y"), SQUARE, [sides, Neumann(u=0.0, on=["top", "bottom"])])
    assert any("known up to a constant" in sentence for sentence in only_fluxes.warnings)
    left, others = Robin(a=1.0, g=0.0, on="left", hard=True), Neumann(u=0.0, on=["right", "top", "bottom"])
    robin = Problem(lambda u: u.xx + u.yy, ("x", "y"), SQUARE, [left, others])
    assert not any("known up to a constant" in sentence for sentence in robin.warnings)
