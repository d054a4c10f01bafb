"""Levenberg-Marquardt on problems whose solutions are known, and what it refuses."""

from __future__ import annotations

import math

import pytest
import torch
from helpers import mlp
from poisson_square import POISSON, VALUE, poisson_terms, relative_error, solved, square
from torch import nn

import dudx
from dudx.optim import Balance, FunctionTerm, LevenbergMarquardt, Term

# -- known solutions ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("solver", "rows"), [("normal", 20), ("free", 20), ("kernel", 4), ("free", 4), ("auto", 4)])
def test_a_linear_problem_takes_one_step(solver, rows):
    """To the solution, or with fewer rows than parameters to the one that is nearest."""
    torch.manual_seed(0)
    a, b = torch.randn(rows, 6, dtype=torch.float64), torch.randn(rows, dtype=torch.float64)
    weight = nn.Parameter(torch.zeros(1, 6, dtype=torch.float64))
    optimizer = LevenbergMarquardt([weight], damping=1e-13, solver=solver, iterations=50, tolerance=1e-12)
    loss = optimizer.step([lambda: nn.functional.linear(a, weight) - b.unsqueeze(1)])
    assert loss == pytest.approx(float(b.square().mean()))
    best = (torch.linalg.pinv(a) @ b).unsqueeze(0)
    torch.testing.assert_close(weight.detach(), best, rtol=0, atol=1e-6 if solver == "free" else 1e-9)


def test_a_curved_valley():
    place = nn.Parameter(torch.tensor([-1.2, 1.0], dtype=torch.float64))
    optimizer = LevenbergMarquardt([place])
    for _ in range(60):
        optimizer.step([lambda: torch.stack([10 * (place[1] - place[0] ** 2), 1 - place[0]])])
    torch.testing.assert_close(place.detach(), torch.ones(2, dtype=torch.float64), rtol=0, atol=1e-8)


@pytest.mark.parametrize("weights", [(1.0, 100.0), (None, None)])
def test_poisson_on_a_square(weights):
    model = mlp(width=16)
    solved(LevenbergMarquardt(model.parameters()), model, dudx.Taylor(), 60, weights=weights, counts=(300, 120))
    assert relative_error(model) < 1e-3


def test_an_unknown_constant():
    torch.manual_seed(0)
    model, rate = mlp(inputs=1, width=8), nn.Parameter(torch.tensor(0.2, dtype=torch.float64))
    t = torch.linspace(0, 2, 40, dtype=torch.float64).unsqueeze(1)
    decay = dudx.Residual(lambda u: u.t + rate * u, ("t",))
    measured = dudx.Residual(lambda u, m: u - m, ("t",), data=("m",))
    optimizer = LevenbergMarquardt([*model.parameters(), rate])
    for _ in range(60):
        optimizer.step(
            [
                Term(decay, model, t, dudx.Taylor(), weight=1.0),
                Term(measured, model, t, dudx.Taylor(), weight=1.0, data={"m": torch.exp(-1.3 * t)}),
            ]
        )
    assert float(rate.detach()) == pytest.approx(1.3, abs=1e-3)


ENGINES = {
    "AD": lambda: dudx.AD(),
    "FD": lambda: dudx.FD(1e-3),
    "EFD": lambda: dudx.EFD({1: 1e-3, 2: 2e-3}),
    "SFD": lambda: dudx.SFD((1e-3, 2e-3), generator=torch.Generator().manual_seed(0)),
    "Taylor": lambda: dudx.Taylor(),
}


@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine(engine):
    model = mlp(width=10)
    solved(LevenbergMarquardt(model.parameters()), model, ENGINES[engine](), 40)
    assert relative_error(model) < 5e-3


def test_a_random_engine_compares_like_with_like():
    # Steps so far apart that with others the loss would be another at the same parameters, and no step be accepted.
    engine = dudx.SFD((1e-3, 0.5), generator=torch.Generator().manual_seed(0))
    model = mlp(width=10)
    optimizer = LevenbergMarquardt(model.parameters(), damping=1e12)
    for _ in range(5):
        inside, edge = square(50, 20)
        optimizer.step(poisson_terms(model, engine, inside, edge))
        assert optimizer.last.accepted
        assert optimizer.last.tries == 1
        assert optimizer.last.new_loss == pytest.approx(optimizer.last.loss, rel=1e-6)


def test_single_precision():
    model = mlp(width=12).float()
    solved(LevenbergMarquardt(model.parameters()), model, dudx.Taylor(), 50, dtype=torch.float32)
    assert relative_error(model, torch.float32) < 5e-3
    assert all(p.dtype == torch.float32 for p in model.parameters())


def test_new_points_at_every_step_with_memory():
    errors = {}
    for memory in (0.0, 0.7):
        model = mlp(width=12)
        optimizer = LevenbergMarquardt(model.parameters(), memory=memory, solver="normal")
        for step in range(50):
            inside, edge = square(60, 40, seed=step)
            optimizer.step(poisson_terms(model, dudx.Taylor(), inside, edge))
        errors[memory] = relative_error(model)
    assert errors[0.7] < 0.01
    assert errors[0.7] < errors[0.0]


def test_gauss_newton_keeps_its_damping_and_shortens_steps():
    model = mlp(width=10)
    optimizer = LevenbergMarquardt(model.parameters(), damping=1e-6, adapt=False, acceleration=False, tries=20)
    losses = solved(optimizer, model, dudx.Taylor(), 40)
    assert optimizer.damping == 1e-6
    assert losses[-1] < 1e-3 * losses[0]


def test_a_network_of_many_parameters_without_a_matrix():
    model = mlp(width=40, depth=2)
    optimizer = LevenbergMarquardt(model.parameters(), solver="free")
    solved(optimizer, model, dudx.Taylor(), 40)
    assert relative_error(model) < 0.02


def test_many_parameters_and_few_samples_are_paired():
    model = mlp(width=40, depth=2)
    few, many = (LevenbergMarquardt(model.parameters(), dense=samples) for samples in (1000, 100))
    assert few.form(230) == "kernel"
    assert many.form(230) == "free"
    solved(few, model, dudx.Taylor(), 40)
    assert relative_error(model) < 0.002


def test_new_points_at_every_step_without_a_normal_matrix():
    errors = {}
    for memory in (0.0, 0.5):
        model = mlp(width=40, depth=2)
        optimizer = LevenbergMarquardt(model.parameters(), memory=memory, solver="kernel")
        for step in range(40):
            optimizer.step(poisson_terms(model, dudx.Taylor(), *square(12, 8, seed=step)))
        errors[memory] = relative_error(model)
    assert errors[0.5] < 0.7 * errors[0.0]


# -- failures ----------------------------------------------------------------------------------------------------------


def test_a_step_that_cannot_be_found_leaves_everything_as_it_was():
    place = nn.Parameter(torch.zeros(1, dtype=torch.float64))
    # The minimum of a parabola, from where every step leads up.
    optimizer = LevenbergMarquardt([place], tries=3)
    optimizer.step([lambda: torch.cat([place + 1, place - 1])])
    assert not optimizer.last.accepted
    assert float(place.detach()) == 0.0
    assert optimizer.last.new_loss == optimizer.last.loss


def test_bad_input_is_told():
    model, (inside, edge) = mlp(width=4), square(5, 5)
    parameters = list(model.parameters())
    for settings, words in (
        ({"damping": 0}, "damping"),
        ({"memory": 1.0}, "memory"),
        ({"tries": 0}, "tries"),
        ({"solver": "qr"}, "solver"),
        ({"solver": "kernel", "reduce": lambda t: t}, "solver='normal'"),
    ):
        with pytest.raises(dudx.errors.InputError, match=words):
            LevenbergMarquardt(parameters, **settings)
    with pytest.raises(dudx.errors.InputError, match="list of tensors"):
        LevenbergMarquardt(model)
    with pytest.raises(dudx.errors.InputError, match="no parameters"):
        LevenbergMarquardt([])
    optimizer = LevenbergMarquardt(parameters)
    for wrong in ([], None, [3]):
        with pytest.raises(dudx.errors.InputError, match="term"):
            optimizer.step(wrong)
    with pytest.raises(dudx.errors.InputError, match="weight"):
        Term(POISSON, model, inside, dudx.AD(), weight=-1)
    with pytest.raises(dudx.errors.InputError, match="weight"):
        FunctionTerm(lambda: inside, weight=math.nan)
    with pytest.raises(dudx.errors.InputError, match=r"dudx\.Residual"):
        Term(lambda u: u, model, inside, dudx.AD())
    with pytest.raises(dudx.errors.InputError, match="entries"):
        optimizer.load_state_dict({"damping": 1.0})
    with pytest.raises(dudx.errors.InputError, match="rate"):
        Balance(rate=0)
    with pytest.raises(dudx.errors.ModelError, match="finite"):
        optimizer.step([Term(VALUE, model, edge, dudx.AD(), data={"g": edge[:, :1] * math.inf})])
