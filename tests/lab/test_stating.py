"""Problems as they are stated: what conditions come to."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from stated import F64, PLATE, ROD, SQUARE, Known, drawn, laplace, left_over

import dudx
from dudx.lab import Data, Dirichlet, Equation, Initial, Interface, Neumann, Problem, Robin


def test_the_exact_solution_satisfies_every_kind_of_condition() -> None:
    # u = x² y: u_n on x=1 is 2xy, on y=0 it is -x², and so on; inside the hole's rim ∂u/∂n = ∇u·n.
    def rim(u: Any, n: Any, x: Any, y: Any) -> Any:
        return u.along(n) - (2 * x * y * n[:, :1] + x * x * n[:, 1:])

    problem = Problem(
        lambda u, y: u.xx + u.yy - 2 * y,
        inputs=("x", "y"),
        domain=PLATE,
        conditions=[
            Dirichlet(u=0.0, on="left"),
            Neumann(u=lambda x, y: 2 * x * y, on="x=1"),
            Robin(a=2.0, g=lambda x: -x * x, on="bottom"),
            Dirichlet(u=lambda x: x * x, on=lambda y: y == 1),
            Equation(rim, on=PLATE.holes),
            Interface(lambda u, x: u.x - 2 * x * 0.3, at="y=0.3"),
            Data([[0.1, 0.2], [0.9, 0.9]], u=[0.002, 0.729], u_x=[0.04, 1.62]),
        ],
    )
    found = left_over(problem, lambda x: x[:, :1] ** 2 * x[:, 1:])
    assert set(found) == {"dirichlet", "dirichlet_2", "neumann", "robin", "equation", "interface", "data"}
    assert max(found.values()) < 1e-14
    wrong = left_over(problem, lambda x: x[:, :1] ** 2 * x[:, 1:] + torch.exp(x[:, :1]) * (1 + x[:, 1:] ** 2))
    assert min(wrong.values()) > 1e-2


def test_conditions_of_one_form_are_one_term_with_the_values_of_each_piece() -> None:
    problem = Problem(
        laplace,
        ("x", "y"),
        PLATE,
        [Dirichlet(u=5.0, on="holes"), Dirichlet(u=lambda y: y, on="outside")],
    )
    (condition,) = problem.conditions
    assert condition.name == "boundary"
    x, data = drawn(condition, 2000)
    hole = (x - 0.5).norm(dim=1) < 0.3
    assert torch.equal(data["g"][hole], torch.full_like(data["g"][hole], 5.0))
    assert torch.equal(data["g"][~hole], x[~hole, 1:])
    # Uniform by length over both.
    assert float(hole.double().mean()) == pytest.approx(0.4 * math.pi / (4 + 0.4 * math.pi), abs=0.03)


def test_several_outputs_derivatives_by_name_and_the_start_in_time() -> None:
    problem = Problem(
        lambda u, v: (u.tt - u.xx + v, v.t - v.xx),
        ("x", "t"),
        ROD,
        [
            Initial(u=lambda x: torch.sin(x), u_t=lambda x: torch.cos(x), v=0.0),
            Dirichlet(u=lambda x, t: torch.sin(x + t), v=lambda t: t),
        ],
    )
    assert problem.names == ("u", "v")
    assert problem.orders == {"u": {"t": 2, "x": 2}, "v": {"t": 1, "x": 2}}
    assert problem.warnings == ()
    found = left_over(problem, lambda x: torch.cat([torch.sin(x[:, :1] + x[:, 1:]), x[:, 1:]], dim=1))
    assert found.keys() == {"initial", "boundary"}
    assert max(found.values()) < 1e-14


@pytest.mark.parametrize(
    ("on", "expected"),
    [
        ("left", [(0, 0.0)]),
        ("top", [(1, 1.0)]),
        (["x=0", "x=1"], [(0, 0.0), (0, 1.0)]),
        (SQUARE.pieces[0], [(0, 0.0)]),
        (lambda x, y: (x == 1) & (y > 0.5), [(0, 1.0)]),
    ],
)
def test_pieces_are_chosen_by_name_piece_or_predicate(on: Any, expected: list[tuple[int, float]]) -> None:
    (condition,) = Problem(laplace, ("x", "y"), SQUARE, [Dirichlet(u=0.0, on=on)]).conditions
    x, _ = drawn(condition)
    there = torch.stack([x[:, axis] == at for axis, at in expected])
    assert there.any(dim=0).all()
    assert there.any(dim=1).all()
    if callable(on):
        assert (x[:, 1] > 0.5).all()


def test_unknown_constants_are_taken_by_name_and_have_gradients() -> None:
    problem = Problem(
        lambda u, nu, t: u.t - nu * u.xx + 0 * t,
        ("x", "t"),
        ROD,
        [Equation(lambda u, nu, n: nu * u.along(n) - u)],
        unknowns={"nu": 0.5},
    )
    nu = problem.unknowns["nu"]  # type: ignore[index]
    x = torch.rand(5, 2, dtype=F64)
    r = problem.residual(Known(lambda x: x[:, :1] ** 2 + x[:, 1:]), x, dudx.AD())
    assert torch.allclose(r, torch.zeros_like(r))
    (gradient,) = torch.autograd.grad(r.sum(), nu)
    assert float(gradient) == pytest.approx(-10.0)
