"""The small trainings behind the comparison of methods and the open questions."""

from __future__ import annotations

import math

import pytest
import torch

import dudx
from reproduction.experiments import methods, outcomes
from reproduction.experiments.entropy import truncated_entropy
from reproduction.measurements import compared_methods, short_training

SIZES = {"batch": 40, "boundary_batch": 20, "initial_batch": 10}
PLAN = {**SIZES, "steps": 3, "every": 2, "width": 6, "depth": 1, "dtype": "float64"}


def test_the_true_solutions_solve_their_equations():
    bump = lambda x: (1 - x.square().sum(1, keepdim=True)) * torch.exp(x[:, :1])  # noqa: E731
    plate = lambda x: (torch.sin(math.pi * x) ** 2).prod(1, keepdim=True)  # noqa: E731
    for name, solution in (("disc", bump), ("plate", plate)):
        task = short_training.task(name, 0, SIZES, torch.float64)
        for part in task.draw():
            assert part.residual(solution, part.points, dudx.Taylor(), **part.data).abs().max() < 1e-10, name
        torch.testing.assert_close(solution(task.points), task.values)


@pytest.mark.parametrize("name", methods.PROBLEMS)
def test_points_follow_from_the_seed_and_errors_are_relative(name):
    task, same, other = (short_training.task(name, seed, SIZES, torch.float64) for seed in (0, 0, 1))
    first = [part.points for part in task.draw()]
    assert all(torch.equal(a, part.points) for a, part in zip(first, same.draw(), strict=True))
    assert not torch.equal(first[0], other.draw()[0].points)
    nothing = lambda x: torch.zeros(len(x), 1, dtype=x.dtype)  # noqa: E731
    assert task.error(nothing) == pytest.approx(1)  # type: ignore[arg-type]


def test_outside_of_the_disc_only_what_stays_inside_trains():
    found = {method: methods.measure("disc", method, 1, **PLAN) for method in ("ad", "fd", "efd-inside")}
    assert [found[method]["status"] for method in found] == ["ok", "refused", "ok"]
    assert found["efd-inside"]["error"] == pytest.approx(found["ad"]["error"], rel=0.2)
    assert "NaN" in found["fd"]["reason"]


def test_training_makes_the_error_smaller_by_both_optimizers():
    for by, steps in ((short_training.levenberg_marquardt, 15), (short_training.adam, 150)):
        task = short_training.task("disc", 0, SIZES, torch.float64)
        model = short_training.network(task, 0, 8, 2, torch.float64)
        before = task.error(model)
        assert short_training.train(task, model, dudx.Taylor(), steps, 10, by)["error"] < before / 2


def test_truncated_entropy():
    assert truncated_entropy(torch.ones(7)) == pytest.approx(1)
    assert truncated_entropy(torch.tensor([1.0, 1e-6, 1e-7])) == 0  # below the cut
    assert truncated_entropy(torch.tensor([1.0, 1.0, 1e-9, 0.0])) == pytest.approx(math.log(2) / math.log(4))


def test_every_method_trains_or_says_why_it_does_not():
    """On the plate, which asks for most: fourth derivatives, mixed ones, and conditions with derivatives."""
    found = {method: methods.measure("plate", method, 1, **PLAN) for method in compared_methods.METHODS}
    others = {method: result["status"] for method, result in found.items() if result["status"] != "ok"}
    assert others == {"per-sample": "does not apply"}
    assert all(found[method]["reason"] for method in others)
    assert all(math.isfinite(found[method]["error"]) for method in found.keys() - others.keys())
    assert found["ad"]["error"] == pytest.approx(found["taylor"]["error"], rel=1e-3)
    # About 40 points in the square, as a grid of 6 lines each way.
    assert found["separated"]["rows"] == pytest.approx(12 / 36)


def test_a_grid_does_not_fit_a_domain_with_holes():
    assert methods.measure("poisson", "separated", 1, **PLAN)["status"] == "does not apply"
    assert methods.measure("burgers", "separated", 1, **PLAN)["status"] == "ok"


def test_points_of_its_own_are_where_the_equation_is_asked_for():
    task = short_training.task("plate", 0, SIZES, torch.float64)
    own = torch.rand(7, 2, dtype=torch.float64)
    equation, *conditions = task.asked_at(own).draw()
    torch.testing.assert_close(equation.points, own)
    assert [part.name for part in conditions] == [part.name for part in task.draw()[1:]]


def test_a_training_of_outcomes():
    found = outcomes.measure("sfd", 0, 2, 6, 1, **SIZES)
    assert found["status"] == "ok"
    assert found["error"] > 0
