"""Derivatives from the values at fixed points: clouds, and the nodes of a box."""

import itertools
import pickle

import numpy as np
import pytest
import torch
from helpers import SMOOTH, Counted, Function, Power, mlp, parameter_gradients, points, rms
from operator_cases import vectors

from dudx import AD, Along, Cloud, D, Laplacian, Residual, Spectral, backward, evaluate
from dudx.engines.request import request_of
from dudx.errors import InputError, UnsupportedError
from dudx.lab.problems.geometry import Box


def cloud(count, seed=0):
    """Points of the square [-1, 1]², a grid that was shaken."""
    line = torch.linspace(-1, 1, count, dtype=torch.float64)
    grid = torch.cartesian_prod(line, line)
    noise = torch.rand(grid.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) - 0.5
    return grid + 0.3 * (2 / count) * noise


@pytest.mark.parametrize("degree", [2, 4])
def test_a_cloud_is_exact_for_its_polynomials(degree):
    x = cloud(9)
    v = vectors(x)
    engine = Cloud(x, degree)
    for powers in itertools.product(range(degree + 1), repeat=2):
        if sum(powers) <= degree:
            f = Function((((1.0, tuple(map(Power, powers))),),))
            found = evaluate(f, x, [D(), D(0), D(0, 1), Laplacian(), Along(v, 2), D(1) - 3 * D()], engine)
            truth = [
                f(x), f.partial(x, 0), f.partial(x, 0, 1), f.laplacian(x), f.along(x, v, 2), f.partial(x, 1) - 3 * f(x),
            ]  # fmt: skip
            torch.testing.assert_close(list(found), truth, rtol=0, atol=1e-8)


@pytest.mark.parametrize(
    ("operator", "order"), [(D(0), 1), (Laplacian(), 2), (D(0, 1), 2)], ids=["x", "laplacian", "xy"]
)
@pytest.mark.parametrize("degree", [3, 5])
def test_a_cloud_converges_at_its_order(operator, order, degree):
    f = SMOOTH["2d"]
    truth = (
        {1: lambda x: f.partial(x, 0), 2: f.laplacian}[order] if operator != D(0, 1) else lambda x: f.partial(x, 0, 1)
    )
    sizes, errors = [16, 32], []
    for count in sizes:
        x = cloud(count)
        errors.append(rms(evaluate(f, x, operator, Cloud(x, degree)) - truth(x)))
    # The rms is ruled by the boundary, where neighbours lie to one side; the clouds are shaken, not scaled.
    assert np.log2(errors[0] / errors[1]) > degree + 1 - order - 0.5


@pytest.mark.parametrize("nodes", ["chebyshev", "legendre"])
def test_spectral_derivatives_converge_exponentially(nodes):
    f, box = SMOOTH["2d"], ((-1.0, 0.0), (1.0, 0.5))
    errors = []
    for degree in (4, 8, 12):
        engine = Spectral(box, (degree, degree - 1), nodes)
        x = engine.points
        v = vectors(x)
        found = evaluate(f, x, [D(0), D(1, 1), D(0, 1), Along(v, 2)], engine)
        truth = [f.partial(x, 0), f.partial(x, 1, 1), f.partial(x, 0, 1), f.along(x, v, 2)]
        errors.append(max(float((a - b).abs().max()) for a, b in zip(found, truth, strict=True)))
    assert errors[0] > 100 * errors[1] > 1e4 * errors[2]
    assert errors[2] < 1e-7  # second derivatives along vectors of length 2


def test_the_nodes_of_a_box():
    engine = Spectral(Box((0.0, 1.0), (1.0, 3.0)), (2, 4))
    assert engine.points.shape == (15, 2)
    assert engine.points.amin(0).tolist() == [0.0, 1.0]
    assert engine.points.amax(0).tolist() == [1.0, 3.0]
    # Gauss–Lobatto–Legendre nodes of degree 4: ±1, ±√(3/7), 0.
    inner = Spectral(((-1.0,), (1.0,)), 4, "legendre").points.flatten()
    torch.testing.assert_close(inner, torch.tensor([-1, -((3 / 7) ** 0.5), 0, (3 / 7) ** 0.5, 1], dtype=inner.dtype))


ENGINES = {"Cloud": Cloud(cloud(9)), "Spectral": Spectral(((-1.0, -1.0), (1.0, 1.0)), 10)}


@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
def test_it_is_one_pass_of_the_points_and_its_gradient_that_of_a_matrix(engine):
    x, network = engine.points, mlp(outputs=2)
    model = Counted(network)
    residual = Residual(lambda u, p: (u.xx + u * p.y, p.laplacian() - u), ("x", "y"))
    residual(model, x, engine)
    model.rows.clear()
    found = residual(model, x, engine)
    assert model.rows[-1] == len(x)
    # The slow twin: each weight is what the engine makes of a function that is 1 at one point.
    identity = lambda _: torch.eye(len(x), dtype=x.dtype)  # noqa: E731
    xx, y, laplacian = engine.derivatives(identity, x, request_of([D(0, 0), D(1), D(0, 0) + D(1, 1)], x))
    u, p = network(x).split(1, dim=1)
    by_hand = xx @ u + u * (y @ p), laplacian @ p - u
    torch.testing.assert_close(found, by_hand)
    gradients = [parameter_gradients(sum(r.square().mean() for r in rs), network) for rs in (found, by_hand)]
    torch.testing.assert_close(*gradients)
    _, jacobian = residual.jacobian(network, x, engine)
    rows = torch.stack([parameter_gradients(r, network) for r in by_hand[0].flatten()[:5]])
    torch.testing.assert_close(jacobian[:5], rows)


def test_gradients_of_spectral_derivatives_agree_with_automatic_differentiation():
    engine, model = Spectral(((-1.0, -1.0), (1.0, 1.0)), 16), mlp()
    losses = [evaluate(model, engine.points, Laplacian() + D(0), e).square().mean() for e in (engine, AD())]
    ours, exact = (parameter_gradients(loss, model) for loss in losses)
    assert (ours - exact).norm() < 1e-6 * exact.norm()


def test_without_points_each_batch_is_its_own_cloud():
    f, x = SMOOTH["2d"], cloud(10)
    engine = Cloud(degree=3)
    torch.testing.assert_close(evaluate(f, x, D(0), engine), evaluate(f, x, D(0), Cloud(x, 3)))
    other = cloud(10, seed=1)
    torch.testing.assert_close(evaluate(f, other, D(0), engine), evaluate(f, other, D(0), Cloud(other, 3)))
    torch.testing.assert_close(evaluate(f, x, D(0), engine), evaluate(f, x, D(0), Cloud(x, 3)))


@pytest.mark.parametrize("unit", [1e-6, 1e3])
@pytest.mark.parametrize("offset", [0.0, 4e6])
def test_a_cloud_does_not_depend_on_units_or_origin(unit, offset):
    points = torch.rand(400, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    moved = (points + torch.tensor([0.0, offset], dtype=torch.float64)) * torch.tensor([1.0, unit], dtype=torch.float64)
    values = torch.sin(3 * points[:, :1]) * torch.cos(3 * points[:, 1:])
    plain, other = Cloud(points), Cloud(moved)
    for axes in ((0, 0), (0, 1), (1, 1)):
        expected = plain.derivatives(lambda _: values, points, request_of(D(*axes), points))[0]
        found = other.derivatives(lambda _: values, moved, request_of(D(*axes), moved))[0] * unit ** axes.count(1)
        # Points at 4e6 are rounded by 5e-10, which second differences over 0.05 magnify.
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_a_slice_is_not_taken_for_a_cloud():
    model, x, residual = mlp(), cloud(12), Residual(lambda u: u.xx, ("x", "y"))
    with pytest.raises(InputError, match="whole"):
        backward(lambda part: residual.loss(model, part, Cloud(degree=2)), x, chunk=72)


def test_precision_follows_the_points_and_engines_are_pickled():
    for engine in ENGINES.values():
        x = engine.points.float()
        value = evaluate(mlp().float(), x, D(0), pickle.loads(pickle.dumps(engine)))
        assert value.dtype == torch.float32
        assert engine.rows(x, [D(0)]).at_once == 1


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Cloud(cloud(9), degree=0), "1 or more"),
        (lambda: Cloud(cloud(3)), "more points"),
        (lambda: Cloud(cloud(9), neighbours=3), "other neighbours"),
        (lambda: evaluate(mlp(), points(81, 2), D(0), Cloud(cloud(9))), "in their order"),
        (lambda: evaluate(mlp(), cloud(9)[:40], D(0), Cloud(cloud(9))), "in their order"),
        (lambda: evaluate(mlp(), cloud(9), D(0, 0, 0), Cloud(cloud(9), 2)), "order 3 needs"),
        (lambda: evaluate(mlp(), cloud(9) * torch.tensor([1.0, 0.0]), D(1), Cloud(degree=2)), "special position"),
        (lambda: evaluate(mlp(), torch.cat([cloud(9)[:1], cloud(9)]), D(1), Cloud()), "twice"),
        (lambda: Spectral(((0.0,), (0.0,)), 3), "below the highest"),
        (lambda: Spectral(3, 3), "lowest and a highest"),
        (lambda: Spectral(((0.0,), (1.0,)), 0), "1 or more"),
        (lambda: Spectral(((0.0,), (1.0,)), 3, "hermite"), "must be one of"),
        (lambda: evaluate(torch.sin, points(4, 1), D(0), Spectral(((0.0,), (1.0,)), 3)), "in their order"),
    ],
)
def test_what_cannot_be_is_one_sentence(make, message):
    with pytest.raises(InputError, match=message):
        make()


def test_points_that_would_move_are_refused():
    for engine in ENGINES.values():
        with pytest.raises(UnsupportedError, match="moves"):
            evaluate(mlp(), engine.points.requires_grad_(), D(0), engine)
        engine.points.requires_grad_(False)
