"""The forms of a Levenberg-Marquardt step against each other: normal, kernel, free, and over processes."""

from __future__ import annotations

import math

import pytest
import torch
from helpers import mlp
from poisson_square import poisson_terms, solved, square

import dudx
from dudx.optim import LevenbergMarquardt


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
    """Return the share of the quadratic model's decrease that a few iterations do not reach."""
    from dudx.optim.conjugate_gradients import MatrixFreeSolver

    model = mlp(width=16, seed=seed)
    solved(LevenbergMarquardt(model.parameters()), model, dudx.Taylor(), 10, seed=seed)
    terms = poisson_terms(model, dudx.Taylor(), *square(100, 40, seed=50 + seed))
    pairs = [term.linearized(list(model.parameters()), torch.float64) for term in terms]
    factors = [torch.full((len(r),), math.sqrt(w / len(r))).double() for (r, _), w in zip(pairs, (1, 100), strict=True)]
    r = torch.cat([f * values for f, (values, _) in zip(factors, pairs, strict=True)])
    solver = MatrixFreeSolver([part for _, part in pairs], factors, r, lambda t: t, 12, 1e-14)
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
