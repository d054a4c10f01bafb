"""Differences that look one way, and such that never leave a domain."""

import pickle
from fractions import Fraction
from math import factorial

import numpy as np
import pytest
import torch
from helpers import SMOOTH, mlp, parameter_gradients, points, rms
from torch import nn

from dudx import AD, EFD, FD, SFD, Along, D, Laplacian, PerSampleAD, Residual, evaluate, find_eps, isolate
from dudx.engines.difference.stencils import one_sided, weights
from dudx.errors import CalibrationError, InputError
from dudx.lab.problems.geometry import Box, Disc, Interval

SQUARE = Box((-1.0, -1.0), (1.0, 1.0))
DOMAINS = {
    "square": SQUARE,
    "disc": Disc((0.0, 0.0), 1.0),
    "plate with a hole": SQUARE - Disc((0.2, 0.1), 0.4),
}
ENGINES = {
    "FD": lambda h, p, **more: FD(h, p, **more),
    "FD, a step for each axis": lambda h, p, **more: FD((h, 0.7 * h), p, **more),
    "EFD": lambda h, p, **more: EFD({k: h * (1 + k / 8) for k in range(1, 5)}, p, **more),
    "SFD": lambda h, p, **more: SFD((h / 2, h), p, generator=torch.Generator().manual_seed(0), **more),
}


def sampled(domain, count=60):
    """Points of a domain, of which many are close to its boundary."""
    x = domain.sobol(count, dtype=torch.float64)
    edge = domain.sample_boundary(count // 3, torch.Generator().manual_seed(0), dtype=torch.float64)
    depths = torch.logspace(-4, -1, len(edge.points), dtype=torch.float64).unsqueeze(1)
    near = edge.points - depths * edge.normals
    return torch.cat([x, near[domain.signed_distance(near) < 0]])


class OnlyInside:
    """A function that is NaN outside of a domain, and notes whether it was asked there."""

    def __init__(self, f, domain):
        self.f, self.domain, self.rows = f, domain, []

    def __call__(self, x):
        outside = self.domain.signed_distance(x.detach()) > 0
        self.rows.append(x.detach())
        return torch.where(outside.unsqueeze(1), torch.nan, self.f(x))


# -- one side --------------------------------------------------------------------------------------------------------


def test_textbook_stencils_that_look_one_way():
    half = Fraction(1, 2)
    assert one_sided(1, 1, 1) == {0: -1, 1: 1}
    assert one_sided(1, 2, 1) == {0: -3 * half, 1: 2, 2: -half}
    assert one_sided(2, 2, -1) == {0: 2, -1: -5, -2: 4, -3: -1}


@pytest.mark.parametrize("offsets", [(0, 1, 2, 5), (-3, -1, 4, 7, 8), (2, 3, 4)])
@pytest.mark.parametrize("order", [0, 1, 2])
def test_weights_of_any_offsets_satisfy_the_moment_conditions(offsets, order):
    found = weights(offsets, order)
    for j in range(len(offsets)):
        moment = sum(weight * Fraction(offset) ** j for offset, weight in found.items())
        assert moment == (factorial(order) if j == order else 0)


@pytest.mark.parametrize("side", ["forward", "backward"])
@pytest.mark.parametrize("accuracy", [1, 2, 3])
def test_one_sided_differences_look_one_way_and_converge_at_their_order(side, accuracy):
    f, x = SMOOTH["2d"], points(30, 2)
    v = torch.tensor([[0.6, 0.8]], dtype=x.dtype).expand_as(x)
    operators = [D(0), D(0, 0), D(0, 1), Along(v), Laplacian()]
    truths = [f.partial(x, 0), f.partial(x, 0, 0), f.partial(x, 0, 1), f.along(x, v, 1), f.laplacian(x)]
    steps, errors, rows = np.geomspace(0.01, 0.04, 3), [], []

    def noted(x):
        rows.append(x)
        return f(x)

    for h in steps:
        found = evaluate(noted, x, operators, FD(h, accuracy, side=side, coupled="ignore"))
        errors.append([rms(value - truth) for value, truth in zip(found, truths, strict=True)])
    for error in zip(*errors, strict=True):
        slope = np.polyfit(np.log(steps), np.log(error), 1)[0]
        assert slope == pytest.approx(accuracy, abs=0.25)  # the next term is felt sooner than in a central stencil
    moved = rows[0].view(-1, *x.shape) - x
    assert (moved >= 0).all() if side == "forward" else (moved <= 0).all()


def test_a_side_is_calibrated_for_itself():
    model, x = mlp(1), points(60, 1)
    engine = FD(accuracy=1, side="forward").calibrated(model, x, [D(0)])
    assert engine.side == "forward"
    # The optimum of accuracy 1 is about the square root of the rounding, that of accuracy 2 its third root.
    assert engine.step < 0.1 * find_eps(model, x, 1).step


# -- inside ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("domain", DOMAINS.values(), ids=DOMAINS)
def test_no_row_lies_outside_and_the_error_is_of_the_order_of_the_step(domain, name):
    f, x = SMOOTH["2d"], sampled(domain)
    v = torch.stack([x[:, 1], -x[:, 0]], dim=1) + 0.5
    operators = [D(), D(0), Laplacian(), D(0, 1), Along(v), D(1) - 0.1 * D(0, 0)]
    truths = [
        f(x), f.partial(x, 0), f.laplacian(x), f.partial(x, 0, 1), f.along(x, v, 1),
        f.partial(x, 1) - 0.1 * f.partial(x, 0, 0),
    ]  # fmt: skip
    errors = []
    for h in (0.08, 0.04):
        model = OnlyInside(f, domain)
        found = evaluate(model, x, operators, ENGINES[name](h, 2, inside=domain, coupled="ignore"))
        assert len(model.rows) == 1
        assert (domain.signed_distance(model.rows[0]) <= 0).all()
        errors.append([float((a - b).abs().max()) for a, b in zip(found, truths, strict=True)])
    assert errors[0][0] == 0
    for coarse, fine in zip(*(row[1:] for row in errors), strict=True):
        assert fine < coarse < 0.2
        # Second order at each point; the set of one-sided points changes with the step, so the ratio is not exactly 4.
        assert coarse / fine > 2.2


@pytest.mark.parametrize("accuracy", [2, 4])
def test_the_order_of_convergence_holds_up_to_the_boundary(accuracy):
    """On the wall all stencils look one way, at every step."""
    f, x = SMOOTH["1d"], torch.tensor([[-1.0], [1.0]], dtype=torch.float64)
    steps = np.geomspace(0.01, 0.04, 3) * (1 if accuracy == 2 else 3)
    operators, truths = [D(0), D(0, 0)], [f.partial(x, 0), f.partial(x, 0, 0)]
    model = OnlyInside(f, Interval(-1.0, 1.0))
    found = [evaluate(model, x, operators, FD(h, accuracy, inside=model.domain, coupled="ignore")) for h in steps]
    for number, truth in enumerate(truths):
        errors = [rms(values[number] - truth) for values in found]
        assert np.polyfit(np.log(steps), np.log(errors), 1)[0] == pytest.approx(accuracy, abs=0.3)


def test_far_from_the_boundary_nothing_changes():
    f, x = SMOOTH["2d"], 0.5 * points(20, 2)
    operators = [D(), D(0), Laplacian(), D(0, 1)]
    plain = evaluate(f, x, operators, FD(0.05))
    torch.testing.assert_close(list(evaluate(f, x, operators, FD(0.05, inside=SQUARE))), list(plain))
    by_function = FD(0.05, inside=lambda x: x.abs().amax(1) - 1)
    torch.testing.assert_close(list(evaluate(f, x, operators, by_function)), list(plain))


def test_the_step_shrinks_down_to_the_floor_and_then_the_stencil_turns():
    """Read off the rows of a first derivative at distances from a wall."""
    x = torch.tensor([[0.5], [0.06], [0.03], [0.02], [0.0]], dtype=torch.float64)
    model = OnlyInside(torch.sin, Interval(0.0, 1.0))
    evaluate(model, x, D(0), FD(0.1, inside=model.domain, coupled="ignore"))
    rows = model.rows[0].flatten()

    def near(*expected):
        return all(bool(((rows - value).abs() < 2e-3).any()) for value in expected)

    assert near(0.4, 0.6)  # in the middle
    assert near(0.0006, 0.1194)  # shrunk to 99 % of the room
    assert near(0.0003, 0.0597)
    assert near(0.12, 0.22, 0.02)  # below a quarter of the step: forward
    assert near(0.1, 0.2, 0.0)


def test_parameter_gradients_agree_with_automatic_differentiation():
    domain = DOMAINS["plate with a hole"]
    model, x = mlp(outputs=2), sampled(domain, 30)
    residual = Residual(lambda u, p: (u.xx + u.yy - p.d("x", "y"), p.x + u * u.y), ("x", "y"))
    gradients = {}
    for name, engine in {
        "ad": AD(),
        "fd": FD(0.01, 4, inside=domain),
        "efd": EFD({1: 0.01, 2: 0.012}, 4, inside=domain),
    }.items():
        loss = sum(r.square().mean() for r in residual(model, x, engine))
        gradients[name] = parameter_gradients(loss, model)
    for name in ("fd", "efd"):
        # Error of one-sided stencils of accuracy 4: some tens of h⁴, and h⁴ is 1e-8 here.
        assert (gradients[name] - gradients["ad"]).norm() < 1e-5 * gradients["ad"].norm()


@pytest.mark.parametrize("walls", [1, 6, 12])
def test_the_gradient_of_each_sample_is_its_own(walls):
    """Also where points with longer and shorter stencils together have as many rows as if all had the same."""
    model, x = mlp(width=6), 0.8 * points(12, 2)
    x[:walls, 0] = 1.0
    residual, engine = Residual(lambda u: u.x + u.yy, ("x", "y")), FD(0.05, inside=SQUARE)
    _, jacobian = residual.jacobian(model, x, engine)
    rows = [parameter_gradients(r, model) for r in residual(model, x, engine).flatten()]
    torch.testing.assert_close(jacobian, torch.stack(rows))


def test_points_that_require_grad_keep_theirs():
    f, x = SMOOTH["1d"], torch.tensor([[0.3], [0.99], [1.0]], dtype=torch.float64, requires_grad=True)
    first = evaluate(f, x, D(0), FD(0.01, 4, inside=Interval(-1.0, 1.0)))
    (gradient,) = torch.autograd.grad(first.sum(), x)
    torch.testing.assert_close(gradient, f.partial(x.detach(), 0, 0), rtol=1e-6, atol=1e-6)


def test_an_isolated_network_keeps_its_samples_apart():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.BatchNorm1d(8), nn.Linear(8, 1)).double()
    x = sampled(SQUARE, 12)
    isolated = isolate(model, x, update_statistics=False)
    ours = evaluate(isolated, x, [D(0), Laplacian()], FD(0.01, 4, inside=SQUARE))
    exact = evaluate(model, x, [D(0), Laplacian()], PerSampleAD())
    torch.testing.assert_close(list(ours), list(exact), rtol=1e-5, atol=1e-5)


def test_the_step_is_found_where_there_is_room():
    domain, x = Interval(-1.0, 1.0), points(200, 1)
    engine = FD(inside=domain).calibrated(OnlyInside(SMOOTH["1d"], domain), x, [D(0), D(0, 0)])
    assert 1e-6 < engine.step < 1e-2
    assert pickle.loads(pickle.dumps(engine)) == engine
    assert engine.with_state(engine.state) == engine
    with pytest.raises(CalibrationError, match="further from the boundary"):
        FD(inside=domain).calibrated(torch.sin, torch.ones(5, 1, dtype=x.dtype), [D(0)])


def test_a_network_that_is_undefined_outside_trains_as_with_automatic_differentiation():
    """u″ = -π² sin(πx) with u = 0 at both ends."""
    domain, errors = Interval(0.0, 1.0), {}
    x = torch.linspace(0, 1, 33, dtype=torch.float64).unsqueeze(1)
    equation = Residual(lambda u, x: u.xx + torch.pi**2 * torch.sin(torch.pi * x), ("x",))
    for name, engine in {"ad": AD(), "inside": FD(1e-2, 4, inside=domain, coupled="ignore")}.items():
        network = mlp(1, width=12, seed=1)
        model = network if name == "ad" else OnlyInside(network, domain)
        optimizer = torch.optim.LBFGS(network.parameters(), max_iter=150, line_search_fn="strong_wolfe")

        def loss(optimizer=optimizer, model=model, engine=engine):
            optimizer.zero_grad()
            total = equation.loss(model, x, engine) + 100 * model(x[[0, -1]]).square().mean()
            total.backward()
            return total

        optimizer.step(loss)
        errors[name] = rms(network(x).detach() - torch.sin(torch.pi * x))
    assert errors["ad"] < 1e-3
    assert errors["inside"] < 3 * errors["ad"] + 1e-4


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FD(0.1, side="left"), "must be one of"),
        (lambda: FD(0.1, side="forward", inside=SQUARE), "side= or inside="),
        (lambda: FD(0.1, inside=3), "signed_distance"),
        (lambda: FD(0.1, inside=SQUARE, floor=0.0), "share of the step"),
        (lambda: FD(0.1, 0, side="forward"), "a whole number, 1 or more"),
    ],
)
def test_what_cannot_be_is_one_sentence(make, message):
    with pytest.raises(InputError, match=message):
        make()


def test_points_outside_or_without_room_are_named():
    f = SMOOTH["2d"]
    with pytest.raises(InputError, match=r"Row 1 of the points lies outside"):
        evaluate(f, torch.tensor([[0.0, 0.0], [1.5, 0.0]], dtype=torch.float64), D(0), FD(0.1, inside=SQUARE))
    with pytest.raises(InputError, match="no room inside for a stencil along axis 1"):
        # The tangent of a disc touches it in one point.
        evaluate(f, torch.tensor([[1.0, 0.0]], dtype=torch.float64), D(1), FD(0.1, inside=DOMAINS["disc"]))
    with pytest.raises(InputError, match="one number a point"):
        evaluate(f, points(4, 2), D(0), FD(0.1, inside=lambda x: x))
