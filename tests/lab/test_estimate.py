"""The error estimate against true errors, of solutions that are known."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Generator, Tensor, nn

import dudx
from dudx.errors import InputError
from dudx.lab import Box, Dirichlet, Interface, Neumann, Polygon, solve
from dudx.lab.problems import Condition, Problem
from dudx.lab.problems.geometry import Interval
from dudx.lab.run.error_estimate import _asked, estimate
from dudx.lab.run.error_points import boundary_factors, interior_points
from dudx.lab.run.networks import MLP
from dudx.optim import LevenbergMarquardt, Term

INPUTS = ("x",)
DOMAIN = Interval(0.0, 1.0)


def exact(x: Tensor) -> Tensor:
    return torch.sin(math.pi * x) + 0.5 * x


def edge(n: int, generator: Generator, device: torch.device, dtype: torch.dtype) -> tuple[Tensor, dict[str, Tensor]]:
    x = DOMAIN.sample_boundary(n, generator, device, dtype).points
    return x, {"g": exact(x)}


def curved(outputs: int = 1) -> Problem:
    """u'' - u³ = f, of which the solution is known; the problem does not say it."""

    def equation(u, x):
        return u.xx - u * u * u + math.pi**2 * torch.sin(math.pi * x) + exact(x) ** 3

    return Problem(
        name="curved",
        title="Curved",
        inputs=INPUTS,
        domain=DOMAIN,
        residual=dudx.Residual(equation, INPUTS),
        conditions=[
            Condition("edge", "boundary", dudx.Residual(lambda u, g: u - g, INPUTS, data=("g",)), edge),
        ],
        outputs=outputs,
    )


def trained(problem: Problem, steps: int) -> nn.Module:
    torch.manual_seed(0)
    model = MLP(1, 1, width=8, depth=2, bounds=problem.domain.bounds).double()
    optimizer, generator = LevenbergMarquardt(model.parameters()), Generator().manual_seed(0)
    for _ in range(steps):
        x = problem.domain.sample(60, generator, dtype=torch.float64)
        at, data = edge(20, generator, torch.device("cpu"), torch.float64)
        optimizer.step(
            [
                Term(problem.residual, model, x, dudx.Taylor(), weight=1.0),
                Term(problem.conditions[0].residual, model, at, dudx.Taylor(), weight=10.0, data=data),
            ]
        )
    return model


def true_error(model: nn.Module) -> float:
    x = torch.linspace(0, 1, 500, dtype=torch.float64)[:, None]
    with torch.no_grad():
        return float((model(x) - exact(x)).norm() / exact(x).norm())


@pytest.mark.parametrize("steps", [3, 10, 40])
def test_within_a_factor_of_three(steps: int) -> None:
    problem = curved()
    model = trained(problem, steps)
    before = [leaf.clone() for leaf in model.parameters()]
    found = estimate(problem, model, dudx.Taylor())
    assert 1 / 3 < found.relative_l2 / true_error(model) < 3
    assert 2 * sum(leaf.numel() for leaf in model.parameters()) < found.directions <= 1500
    assert found.reason is None
    assert all(
        torch.equal(leaf, old) and leaf.requires_grad for leaf, old in zip(model.parameters(), before, strict=True)
    )


@pytest.mark.parametrize("engine", [dudx.AD(), dudx.FD(1e-3)], ids=["AD", "FD"])
def test_other_engines_say_the_same(engine: dudx.Engine) -> None:
    problem = curved()
    model = trained(problem, 5)
    expected = estimate(problem, model, dudx.Taylor(), directions=80)
    found = estimate(problem, model, engine, directions=80)
    assert found.relative_l2 == pytest.approx(expected.relative_l2, rel=0.05)


def test_repeatable_and_of_few_directions() -> None:
    problem = curved()
    model = trained(problem, 5)
    found = [estimate(problem, model, dudx.Taylor(), points=200, directions=40, seed=3) for _ in range(2)]
    assert found[0] == found[1]
    assert (found[0].points, found[0].directions) == (200, 40)
    assert 1 / 3 < found[0].relative_l2 / true_error(model) < 3


def test_several_functions_and_equations() -> None:
    """u' = v, v' = -u with u(0) = 0, v(0) = 1: sine and cosine."""

    def start(n: int, generator: Generator, device: torch.device, dtype: torch.dtype):
        return torch.zeros(n, 1, dtype=dtype), {}

    problem = Problem(
        name="circle",
        title="Circle",
        inputs=("t",),
        domain=Interval(0.0, 2.0),
        residual=dudx.Residual(lambda u, v: (u.t - v, v.t + u), ("t",)),
        conditions=[Condition("start", "boundary", dudx.Residual(lambda u, v: (u, v - 1), ("t",)), start)],
        outputs=2,
    )
    torch.manual_seed(0)
    model = MLP(1, 2, width=6, depth=2, bounds=problem.domain.bounds).double()
    optimizer, generator = LevenbergMarquardt(model.parameters()), Generator().manual_seed(0)
    t = torch.linspace(0, 2, 500, dtype=torch.float64)[:, None]
    exactly = torch.cat([torch.sin(t), torch.cos(t)], dim=1)
    for _ in range(6):
        x = problem.domain.sample(40, generator, dtype=torch.float64)
        at = torch.zeros(1, 1, dtype=torch.float64)
        optimizer.step(
            [
                Term(problem.residual, model, x, dudx.Taylor(), weight=1.0),
                Term(problem.conditions[0].residual, model, at, dudx.Taylor(), weight=1.0),
            ]
        )
    error = float((model(t).detach() - exactly).norm() / exactly.norm())
    assert error > 1e-6
    assert 1 / 3 < estimate(problem, model, dudx.Taylor()).relative_l2 / error < 3


def test_functions_that_the_equation_does_not_name_are_told() -> None:
    with pytest.raises(InputError, match="names 1 output"):
        estimate(curved(outputs=2), MLP(1, 2, 4, 1), dudx.Taylor())


def test_functions_count_where_the_equation_looks_at_them() -> None:
    """Two functions that meet in the middle: each is constrained on its own side only."""
    conditions = [Dirichlet(u=0.0, on="left"), Dirichlet(v=0.0, on="right"), Interface(lambda u, v: u - v, at="x=0")]
    problem = Problem(
        lambda u, v, x: torch.where(x < 0, u.xx, v.xx), inputs=("x",), domain=Interval(-1, 1), conditions=conditions
    )
    network = MLP(1, 2, 5, 1).double()
    x = torch.linspace(-0.9, 0.9, 18, dtype=torch.float64)[:, None]
    asked = _asked(problem, network, x, dudx.Taylor(), Generator().manual_seed(0))
    assert torch.equal(asked, torch.stack([x[:, 0] < 0, x[:, 0] >= 0]))


# -- problems whose residuals alone say little -----------------------------------------------------------------------


def line(slope: float, start: float) -> nn.Module:
    found = nn.Linear(1, 1).double()
    with torch.no_grad():
        found.weight.fill_(slope)
        found.bias.fill_(start)
    return found


def relative(model: nn.Module, true: Tensor, x: Tensor) -> float:
    with torch.no_grad():
        return float((model(x) - true).norm() / true.norm())


@pytest.mark.parametrize("width", [1e-2, 1e-3])
def test_a_missed_layer_is_seen(width: float) -> None:
    """The residual of x - 0.47 is zero; its values on the boundary are wrong by 0.47 and 0.53."""
    problem = Problem(
        lambda u: -width * u.xx + u.x - 1, inputs=("x",), domain=Interval(0, 1), conditions=[Dirichlet(u=0.0)]
    )
    x = torch.linspace(0, 1, 20_001, dtype=torch.float64)[:, None]
    true = relative(line(1.0, -0.47), x - torch.exp((x - 1) / width), x)
    assert 0.5 < estimate(problem, line(1.0, -0.47), dudx.Taylor()).relative_l2 / true < 2


def corner(x: Tensor, y: Tensor) -> Tensor:
    angle = torch.atan2(y, x)
    angle = torch.where(angle < -1e-12, angle + 2 * math.pi, angle)
    return (x * x + y * y) ** (1 / 3) * torch.sin(2 / 3 * angle)


def test_a_singular_corner() -> None:
    domain = Polygon((0, 0), (1, 0), (1, 1), (-1, 1), (-1, -1), (0, -1))
    problem = Problem(lambda u: u.xx + u.yy, ("x", "y"), domain, [Dirichlet(u=corner)])
    torch.manual_seed(0)
    model = MLP(2, 1, width=10, depth=2).double()
    optimizer, generator = LevenbergMarquardt(model.parameters()), Generator().manual_seed(0)
    (edge,) = problem.conditions
    for _ in range(15):
        x = domain.sample(200, generator, dtype=torch.float64)
        at, data = edge.sample(100, generator, torch.device("cpu"), torch.float64)
        optimizer.step(
            [
                Term(problem.residual, model, x, dudx.Taylor(), weight=1.0, tame=True),
                Term(edge.residual, model, at, dudx.Taylor(), weight=100.0, data=data),
            ]
        )
    x = domain.sobol(4000, dtype=torch.float64)
    true = relative(model, corner(x[:, :1], x[:, 1:]), x)
    assert 1 / 3 < estimate(problem, model, dudx.Taylor(), directions=800).relative_l2 / true < 3


def waves(square: float, condition: object) -> Problem:
    """Helmholtz' equation in a square, whose eigenvalues with u = 0 on the boundary are π² (i² + j²)."""
    return Problem(
        lambda u, x: u.xx + u.yy + square * u - torch.sin(3 * x), ("x", "y"), Box((0, 0), (1, 1)), [condition]
    )


@pytest.mark.parametrize(
    ("problem", "unique"),
    [
        (waves(0.0, Neumann(u=0.0)), False),
        (waves(2 * math.pi**2, Dirichlet(u=0.0)), False),
        (waves(2.1 * math.pi**2, Dirichlet(u=0.0)), True),
    ],
    ids=["pure Neumann", "at an eigenvalue", "near an eigenvalue"],
)
def test_no_estimate_where_the_solution_is_not_unique(problem: Problem, unique: bool) -> None:
    torch.manual_seed(0)
    found = estimate(problem, MLP(2, 1, width=10, depth=2).double(), dudx.Taylor())
    assert math.isfinite(found.relative_l2) is unique
    assert (found.reason is None) is unique


def test_solve_says_why_there_is_no_estimate(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = {"width": 6, "depth": 2, "batch": 60, "boundary_batch": 30}
    with pytest.warns(UserWarning, match="known up to a constant"):
        solution = solve(waves(0.0, Neumann(u=0.0)), minutes=10, epochs=3, **sizes)
    assert solution.estimate is None
    assert "not unique" in (solution.no_estimate or "")
    assert "No error estimate, because the solution can change" in capsys.readouterr().err


def test_points_near_the_boundary_stand_for_the_volume_that_they_cover() -> None:
    """The mean of a function with the points' factors is that of even points, and some points are in a thin layer."""
    square, generator = Box((0, 0), (2, 1)), Generator().manual_seed(0)
    x = interior_points(square, 40_000, generator, torch.float64)
    factors = boundary_factors(square, x, torch.ones(len(x), dtype=torch.float64))
    assert square.contains(x).all()
    assert float((factors * x[:, 0] ** 2).sum() / factors.sum()) == pytest.approx(4 / 3, rel=0.02)
    assert float(factors.mean()) == pytest.approx(1.0, rel=0.02)
    assert float((-square.signed_distance(x) < 1e-3).double().mean()) > 0.05
