"""The error estimate against true errors, of solutions that are known."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Generator, Tensor, nn

import dudx
from dudx.errors import InputError
from dudx.lab import Dirichlet, Interface
from dudx.lab.problems import Condition, Problem
from dudx.lab.problems.geometry import Interval
from dudx.lab.run.error_estimate import _asked, estimate
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
    assert found.directions == 2 * sum(leaf.numel() for leaf in model.parameters())
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
