"""The small trainings behind the comparison of methods and the open questions."""

from __future__ import annotations

import math

import pytest
import torch

import dudx
from dudx.lab.paper.experiments import methods, outcomes, small
from dudx.lab.paper.experiments.entropy import truncated_entropy

SIZES = {"batch": 40, "boundary_batch": 20, "initial_batch": 10}
PLAN = {**SIZES, "steps": 3, "every": 2, "width": 6, "depth": 1, "dtype": "float64"}


def test_the_true_solutions_solve_their_equations():
    bump = lambda x: (1 - x.square().sum(1, keepdim=True)) * torch.exp(x[:, :1])  # noqa: E731
    plate = lambda x: (torch.sin(math.pi * x) ** 2).prod(1, keepdim=True)  # noqa: E731
    for name, solution in (("disc", bump), ("plate", plate)):
        task = small.task(name, 0, SIZES, torch.float64)
        for residual, x, data in task.draw():
            assert residual(solution, x, dudx.Taylor(), **data).abs().max() < 1e-10, name
        torch.testing.assert_close(solution(task.points), task.values)


@pytest.mark.parametrize("name", methods.PROBLEMS)
def test_points_follow_from_the_seed_and_errors_are_relative(name):
    task, same, other = (small.task(name, seed, SIZES, torch.float64) for seed in (0, 0, 1))
    first = [x for _, x, _ in task.draw()]
    assert all(torch.equal(a, b) for a, (_, b, _) in zip(first, same.draw(), strict=True))
    assert not torch.equal(first[0], other.draw()[0][1])
    nothing = lambda x: torch.zeros(len(x), 1, dtype=x.dtype)  # noqa: E731
    assert task.error(nothing) == pytest.approx(1)  # type: ignore[arg-type]


def test_outside_of_the_disc_only_what_stays_inside_trains():
    found = {method: methods.measure("disc", method, 1, **PLAN) for method in ("ad", "fd", "fd-inside")}
    assert [found[method]["status"] for method in found] == ["ok", "refused", "ok"]
    assert found["fd-inside"]["error"] == pytest.approx(found["ad"]["error"], rel=0.2)
    assert "NaN" in found["fd"]["reason"]


def test_training_makes_the_error_smaller_by_both_optimizers():
    for by, steps in ((small.levenberg_marquardt, 15), (small.adam, 150)):
        task = small.task("disc", 0, SIZES, torch.float64)
        model = small.network(task, 0, 8, 2, torch.float64)
        before = task.error(model)
        assert small.train(task, model, dudx.Taylor(), steps, 10, by)["error"] < before / 2


def test_truncated_entropy():
    assert truncated_entropy(torch.ones(7)) == pytest.approx(1)
    assert truncated_entropy(torch.tensor([1.0, 1e-6, 1e-7])) == 0  # below the cut
    assert truncated_entropy(torch.tensor([1.0, 1.0, 1e-9, 0.0])) == pytest.approx(math.log(2) / math.log(4))


def test_outcomes_say_how_far_a_solution_spreads():
    found = outcomes.measure("sfd", 0, 2, 6, 1, **SIZES)
    assert found["status"] == "ok"
    assert found["spread"] > 0
