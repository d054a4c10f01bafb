"""Networks made for a problem: periodic, with unknown functions and with values that hold whatever they are."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from stated import F64, PLATE, ROD, drawn, laplace, network

import dudx
from dudx.lab import Dirichlet, Disc, Initial, Interval, Periodic, Polygon, Problem


@pytest.mark.parametrize("engine", [dudx.AD(), dudx.Taylor()])
def test_a_periodic_solution_repeats_itself_with_its_derivatives(engine: dudx.Engine) -> None:
    problem = Problem(
        lambda u: u.t + u.x, ("x", "t"), ROD, [Periodic("x"), Initial(u=lambda x: torch.sin(math.pi * x))]
    )
    assert problem.periodic == (0,)
    assert [condition.name for condition in problem.conditions] == ["initial"]
    model = network(problem)
    t = torch.rand(7, 1, dtype=F64)
    ends = [torch.cat([torch.full_like(t, end), t], dim=1) for end in (0.0, 2.0)]
    both = [dudx.evaluate(model, x, [dudx.D(), dudx.D(0), dudx.D(0, 0), dudx.D(1)], engine) for x in ends]
    for a, b in zip(*both, strict=True):
        assert torch.allclose(a, b, atol=1e-12)
    assert float(both[0][1].detach().std()) > 1e-3


def test_an_unknown_function_depends_on_its_inputs_only() -> None:
    problem = Problem(
        lambda k, u: k * u.xx + k.x * u.x - u.t, ("x", "t"), ROD, [Initial(u=0.0)], functions={"k": ("x",)}
    )
    model, x = network(problem), torch.rand(6, 2, dtype=F64)
    later = torch.cat([x[:, :1], x[:, 1:] + 0.3], dim=1)
    assert torch.equal(model(x)[:, 0], model(later)[:, 0])
    assert not torch.allclose(model(x)[:, 1], model(later)[:, 1])
    exact, taylor = (problem.residual(model, x, engine) for engine in (dudx.AD(), dudx.Taylor()))
    assert torch.allclose(exact, taylor, atol=1e-12)


HARD = {
    "plate": (PLATE, [Dirichlet(u=1.0, on="outside", hard=True), Dirichlet(u=lambda x: 3 * x, on="holes", hard=True)]),
    "disc": (Disc((0, 0), 1), [Dirichlet(u=lambda x, y: x * y, hard=True)]),
    "triangle": (Polygon((0, 0), (1, 0), (0, 1)), [Dirichlet(u=lambda x: torch.sin(x), hard=True)]),
}


@pytest.mark.parametrize("name", HARD)
def test_hard_values_hold_whatever_the_network_is(name: str) -> None:
    domain, conditions = HARD[name]
    problem = Problem(laplace, ("x", "y"), domain, conditions)
    soft = Problem(laplace, ("x", "y"), domain, [Dirichlet(on=c.on, **c.given) for c in conditions])
    assert len(problem.conditions) == 0
    model, (condition,) = network(problem), soft.conditions
    x, data = drawn(condition)
    assert float((model(x) - data["g"]).detach().abs().max()) < 1e-12
    inside = domain.sample(50, torch.Generator().manual_seed(0), dtype=F64)
    exact, taylor = (problem.residual(model, inside, engine) for engine in (dudx.AD(), dudx.Taylor()))
    assert torch.allclose(exact, taylor, rtol=1e-9, atol=1e-9)


def test_a_hard_start_and_boundary_that_fit_each_other_hold_together() -> None:
    conditions = [Initial(u=lambda x: x * (2 - x), hard=True), Dirichlet(u=0.0, hard=True)]
    problem = Problem(lambda u: u.t - u.xx, ("x", "t"), ROD, conditions)
    model = network(problem)
    x = torch.tensor([[0.0, 0.4], [2.0, 0.9], [0.5, 0.0], [1.0, 0.0]], dtype=F64)
    assert torch.allclose(model(x)[:, 0], torch.tensor([0.0, 0.0, 0.75, 1.0], dtype=F64))


def test_a_replaced_problem_keeps_what_was_stated() -> None:
    problem = Problem(
        lambda u: u.t - u.xx, ("x", "t"), ROD, [Periodic("x"), Initial(u=lambda x: x * (2 - x), hard=True)]
    )
    other = dataclasses.replace(problem, title="Another", domain=Interval(0, 3) * Interval(1, 2))
    assert (other.title, other.periodic) == ("Another", (0,))
    x = torch.tensor([[0.5, 1.0]], dtype=F64)
    assert float(network(other)(x)) == pytest.approx(0.75)
