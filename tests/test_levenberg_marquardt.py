"""The optimizer on problems whose solutions are known, and its forms against each other."""

from __future__ import annotations

import io
import math

import pytest
import torch
from helpers import mlp, points
from torch import nn

import dudx
from dudx.optim import Balance, FunctionTerm, LevenbergMarquardt, Term, jacobian

POISSON = dudx.Residual(lambda u, f: u.xx + u.yy - f, ("x", "y"), data=("f",))
VALUE = dudx.Residual(lambda u, g: u - g, ("x", "y"), data=("g",))


def exact(x):
    return torch.sin(math.pi * x[:, :1]) * torch.sin(math.pi * x[:, 1:]) + 0.3 * x[:, :1]


def poisson_terms(model, engine, inside, edge, weights=(1.0, 100.0)):
    f = -2 * math.pi**2 * (exact(inside) - 0.3 * inside[:, :1])
    return [
        Term(POISSON, model, inside, engine, weight=weights[0], data={"f": f}),
        Term(VALUE, model, edge, engine, weight=weights[1], data={"g": exact(edge)}),
    ]


def square(count, edge, seed=0, dtype=torch.float64):
    """Points in the unit square and on its edge."""
    inside = (points(count, 2, seed=seed) + 1) / 2
    rim = (points(edge, 2, seed=seed + 1) + 1) / 2
    side = torch.arange(edge) % 4
    rim[side < 2, 0] = (side[side < 2] % 2).to(rim)
    rim[side >= 2, 1] = (side[side >= 2] % 2).to(rim)
    return inside.to(dtype), rim.to(dtype)


def solved(optimizer, model, engine, steps, seed=0, dtype=torch.float64, weights=(1.0, 100.0), counts=(150, 80)):
    """The losses of some steps, with new points every five."""
    losses = []
    for step in range(steps):
        inside, edge = square(*counts, seed=100 * seed + step // 5, dtype=dtype)
        losses.append(optimizer.step(poisson_terms(model, engine, inside, edge, weights)))
    return losses


def relative_error(model, dtype=torch.float64):
    x, _ = square(2000, 4, seed=999, dtype=dtype)
    with torch.no_grad():
        return float((model(x) - exact(x)).norm() / exact(x).norm())


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


@pytest.mark.parametrize("solver", ["kernel", "free"])
def test_without_a_normal_matrix_a_step_is_damped_towards_the_last_one(solver):
    """δ minimises |Jδ + r|² + λ |δ - share of the last step|²: the slow way, by the normal matrix."""
    share, damping = 0.8, 10.0
    model = mlp(width=6)
    settings = {"acceleration": False, "adapt": False, "iterations": 500, "tolerance": 1e-14}
    optimizer = LevenbergMarquardt(model.parameters(), damping, memory=share, solver=solver, **settings)

    def vector():
        return torch.cat([p.detach().flatten() for p in model.parameters()])

    places = [vector()]
    for step in range(2):
        terms = poisson_terms(model, dudx.Taylor(), *square(30, 12, seed=step))
        pairs = [term.linearized(list(model.parameters()), None) for term in terms]
        optimizer.step(terms)
        places.append(vector())
        assert optimizer.last.tries == 1
    scales = [math.sqrt(term.weight / len(r)) for term, (r, _) in zip(terms, pairs, strict=True)]
    r = torch.cat([scale * r for scale, (r, _) in zip(scales, pairs, strict=True)])
    j = torch.cat([scale * part.dense() for scale, (_, part) in zip(scales, pairs, strict=True)])
    ridge = damping * j.square().sum() / min(j.shape) * torch.eye(j.shape[1], dtype=j.dtype)
    last = places[1] - places[0]
    expected = torch.linalg.solve(j.T @ j + ridge, ridge @ (share * last) - j.T @ r)
    torch.testing.assert_close(places[2] - places[1], expected, rtol=0, atol=1e-8 * float(expected.norm()))


def test_new_points_at_every_step_without_a_normal_matrix():
    errors = {}
    for memory in (0.0, 0.5):
        model = mlp(width=40, depth=2)
        optimizer = LevenbergMarquardt(model.parameters(), memory=memory, solver="kernel")
        for step in range(40):
            optimizer.step(poisson_terms(model, dudx.Taylor(), *square(12, 8, seed=step)))
        errors[memory] = relative_error(model)
    assert errors[0.5] < 0.7 * errors[0.0]


# -- the forms agree ---------------------------------------------------------------------------------------------------


def one_step(solver, terms_of, **settings):
    model = mlp(width=9)
    optimizer = LevenbergMarquardt(model.parameters(), damping=1e-4, solver=solver, **settings)
    losses = [optimizer.step(terms_of(model)) for _ in range(2)]
    return losses, torch.cat([p.detach().flatten() for p in model.parameters()]), optimizer


@pytest.mark.parametrize("counts", [(40, 20), (120, 60)])
@pytest.mark.parametrize("acceleration", [False, True])
def test_kernel_and_free_steps_are_the_normal_one(counts, acceleration):
    def terms(model):
        return poisson_terms(model, dudx.Taylor(), *square(*counts))

    losses, parameters, _ = one_step("normal", terms, acceleration=acceleration)
    for solver, settings in (("kernel", {}), ("free", {"iterations": 300, "tolerance": 1e-13})):
        others, moved, _ = one_step(solver, terms, acceleration=acceleration, **settings)
        assert others == pytest.approx(losses, rel=1e-7)
        torch.testing.assert_close(moved, parameters, rtol=0, atol=1e-7)


def missing(damping, preconditioned, seed):
    """What share of the quadratic model's decrease a few iterations do not reach; it is what they minimise."""
    from dudx.optim.conjugate import Free

    model = mlp(width=16, seed=seed)
    solved(LevenbergMarquardt(model.parameters()), model, dudx.Taylor(), 10, seed=seed)
    terms = poisson_terms(model, dudx.Taylor(), *square(100, 40, seed=50 + seed))
    pairs = [term.linearized(list(model.parameters()), torch.float64) for term in terms]
    factors = [torch.full((len(r),), math.sqrt(w / len(r))).double() for (r, _), w in zip(pairs, (1, 100), strict=True)]
    r = torch.cat([f * values for f, (values, _) in zip(factors, pairs, strict=True)])
    solver = Free([part for _, part in pairs], factors, r, lambda t: t, 12, 1e-14)
    solver.damp(damping * solver.scale)
    if not preconditioned:
        solver._preconditioner = lambda v: v
    rows = torch.cat([f[:, None] * part.dense() for f, (_, part) in zip(factors, pairs, strict=True)])
    matrix = rows.T @ rows + damping * solver.scale * torch.eye(rows.shape[1]).double()
    g, x = solver.gradient, solver.solve(r, solver.gradient)
    return 1 - float((g @ x - 0.5 * x @ matrix @ x) / (0.5 * g @ torch.linalg.solve(matrix, g)))


@pytest.mark.parametrize("seed", [3, 4, 5])
def test_the_preconditioner_saves_iterations_where_they_are_many_and_wastes_none_elsewhere(seed):
    assert missing(1e-6, True, seed) < 0.3 * missing(1e-6, False, seed)
    assert missing(1.0, True, seed) < 1e-4


@pytest.mark.parametrize("weights", [(1.0, 100.0), (None, None)])
def test_processes_that_share_the_points_take_the_same_step(weights):
    """Two parts of a batch, their matrices summed, as `torch.distributed.all_reduce` would."""
    inside, edge = square(120, 90)

    def terms(model, part):
        return poisson_terms(model, dudx.Taylor(), inside[part], edge[part], weights)

    parts = (slice(0, 40), slice(40, 100))
    _, whole, _ = one_step("normal", lambda m: terms(m, slice(0, 100)), acceleration=True)
    halves = _in_lockstep(parts, terms)
    torch.testing.assert_close(halves[0], halves[1], rtol=0, atol=0)
    torch.testing.assert_close(halves[0], whole, rtol=0, atol=1e-8)


def _in_lockstep(parts, terms):
    """Two threads that meet wherever they reduce."""
    import threading

    barrier, box, found = threading.Barrier(2, timeout=60), {}, {}
    models = [mlp(width=9) for _ in parts]

    def run(rank):
        def reduce(tensor):
            box[rank] = tensor.clone()
            barrier.wait()
            total = box[0] + box[1]
            barrier.wait()
            return tensor.copy_(total)

        model = models[rank]
        optimizer = LevenbergMarquardt(
            model.parameters(), damping=1e-4, solver="normal", acceleration=True, reduce=reduce
        )
        for _ in range(2):
            optimizer.step(terms(model, parts[rank]))
        found[rank] = torch.cat([p.detach().flatten() for p in model.parameters()])

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


# -- checkpoints -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("memory", [0.0, 0.6])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_going_on_from_a_checkpoint_is_bit_identical(memory, dtype):
    def made():
        model = mlp(width=8).to(dtype)
        return model, LevenbergMarquardt(model.parameters(), memory=memory)

    def run(model, optimizer, steps):
        generator = torch.Generator().manual_seed(0)
        engine = dudx.SFD((1e-2, 2e-2), generator=generator)
        losses = []
        for step in steps:
            generator.manual_seed(step)
            inside, edge = square(60, 30, seed=step, dtype=dtype)
            losses.append(optimizer.step(poisson_terms(model, engine, inside, edge, (None, None))))
        return losses

    model, optimizer = made()
    losses = run(model, optimizer, range(12))
    again, other = made()
    assert run(again, other, range(6)) == losses[:6]
    file = io.BytesIO()
    torch.save({"model": again.state_dict(), "optimizer": other.state_dict()}, file)
    file.seek(0)
    kept = torch.load(file, weights_only=True)
    resumed, third = made()
    resumed.load_state_dict(kept["model"])
    third.load_state_dict(kept["optimizer"])
    assert run(resumed, third, range(6, 12)) == losses[6:]
    for a, b in zip(model.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(a, b)


# -- weights -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["mean", "median"])
def test_weights_are_one_over_the_rows_squared_lengths(by):
    model, (inside, edge) = mlp(width=6), square(50, 31)
    terms = poisson_terms(model, dudx.Taylor(), inside, edge, (None, None))
    optimizer = LevenbergMarquardt(model.parameters(), balance=Balance(rate=0.3, by=by))
    expected = []
    for term in terms:
        squares = jacobian(term.residual, model, term.x, term.engine, **term.data)[1].square().sum(1)
        expected.append(1 / float(getattr(squares, by)()))
    optimizer.step(terms)
    assert [w for of_term in optimizer.last.weights for w in of_term] == pytest.approx(expected, rel=1e-9)
    optimizer.step(terms)
    assert [w for of_term in optimizer.last.weights for w in of_term] != pytest.approx(expected, rel=1e-6)


def test_weights_for_any_optimizer():
    model, (inside, edge) = mlp(width=6), square(50, 30)
    terms = poisson_terms(model, dudx.Taylor(), inside, edge, (None, 3.0))
    squares = jacobian(POISSON, model, inside, dudx.AD(), **terms[0].data)[1].square().sum(1)
    ((first,), (second,)) = Balance().weights(terms, list(model.parameters()))
    assert first == pytest.approx(1 / float(squares.mean()), rel=1e-9)
    assert second == 3.0


def test_tame_residuals_count_by_their_size():
    """One step of a linear problem is least squares with the rows divided by half of 1 + size / mean size."""
    a, target = points(30, 3, seed=3), points(30, 1, seed=4)[:, 0]
    target[7] = 50.0
    theta = nn.Parameter(torch.zeros(3, dtype=torch.float64))
    term = FunctionTerm(lambda: a @ theta - target)
    term.tame = True
    LevenbergMarquardt([theta], damping=1e-12, acceleration=False).step([term])
    factors = 1 / (0.5 + 0.5 * target.abs() / target.abs().mean())
    wanted = torch.linalg.lstsq(factors[:, None] * a, (factors * target)[:, None]).solution[:, 0]
    assert torch.allclose(theta.detach(), wanted, rtol=1e-6)
    plain = torch.linalg.lstsq(a, target[:, None]).solution[:, 0]
    assert not torch.allclose(wanted, plain, rtol=1e-1)


def test_fixed_weights_stay():
    model, (inside, edge) = mlp(width=6), square(50, 30)
    optimizer = LevenbergMarquardt(model.parameters())
    optimizer.step(poisson_terms(model, dudx.Taylor(), inside, edge, (2.0, None)))
    assert optimizer.last.weights[0] == (2.0,)
    assert optimizer.last.weights[1][0] != 1.0


def test_each_equation_of_a_term_has_a_weight_of_its_own():
    model, (inside, _) = mlp(outputs=2, width=6), square(30, 4)
    system = dudx.Residual(lambda u, v: (100 * u.x + v, v - u), ("x", "y"))
    optimizer = LevenbergMarquardt(model.parameters())
    optimizer.step([Term(system, model, inside, dudx.Taylor())])
    ((first, second),) = optimizer.last.weights
    assert second > 100 * first


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
        with pytest.raises(dudx.InputError, match=words):
            LevenbergMarquardt(parameters, **settings)
    with pytest.raises(dudx.InputError, match="list of tensors"):
        LevenbergMarquardt(model)
    with pytest.raises(dudx.InputError, match="no parameters"):
        LevenbergMarquardt([])
    optimizer = LevenbergMarquardt(parameters)
    for wrong in ([], None, [3]):
        with pytest.raises(dudx.InputError, match="term"):
            optimizer.step(wrong)
    with pytest.raises(dudx.InputError, match="weight"):
        Term(POISSON, model, inside, dudx.AD(), weight=-1)
    with pytest.raises(dudx.InputError, match="weight"):
        FunctionTerm(lambda: inside, weight=math.nan)
    with pytest.raises(dudx.InputError, match=r"dudx\.Residual"):
        Term(lambda u: u, model, inside, dudx.AD())
    with pytest.raises(dudx.InputError, match="entries"):
        optimizer.load_state_dict({"damping": 1.0})
    with pytest.raises(dudx.InputError, match="rate"):
        Balance(rate=0)
    with pytest.raises(dudx.ModelError, match="finite"):
        optimizer.step([Term(VALUE, model, edge, dudx.AD(), data={"g": edge[:, :1] * math.inf})])
