"""Finite differences: orders of convergence, rounding, steps of each axis, rows through the network, random steps."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers import DIFFERENCE, SMOOTH, Counted, mlp, points, rms
from operator_cases import grid, vectors

from dudx import AD, EFD, FD, SFD, Along, D, Laplacian, Residual, evaluate


def slope(steps, errors):
    return float(np.polyfit(np.log(steps), np.log(errors), 1)[0])


# Between these steps the leading term is the error: below them accuracy 6 meets rounding at order four, and above
# them the next term is felt, the sooner the lower the accuracy.
RANGES = {2: (0.02, 0.08), 4: (0.06, 0.16), 6: (0.12, 0.24)}
# The next term bends the curve by about (h a)^2, and at the larger steps of the wide stencils by more.
SLOPE_TOLERANCE = {2: 0.15, 4: 0.3, 6: 0.3}
EXACT_FOR_DIFFERENCES = {"value", "zero"}


# The engines share stencils and differ in their steps, so that one accuracy of each is enough beside all of FD's.
@pytest.mark.parametrize(("name", "accuracy"), [*(("FD", a) for a in RANGES), ("EFD", 4), ("SFD", 2), ("FD inside", 4)])
@pytest.mark.parametrize(
    ("f", "operator", "truth"),
    [
        case
        for case in grid({name: SMOOTH[name] for name in ("1d", "2d-vector", "3d-vector")})
        if case.id.split(": ")[1] not in EXACT_FOR_DIFFERENCES
    ],
)
def test_differences_converge_at_their_order(f, operator, truth, accuracy, name):
    x = points(40, f.dimensions)
    v = vectors(x)
    steps = np.geomspace(*RANGES[accuracy], 4)
    errors = [rms(evaluate(f, x, operator(v), DIFFERENCE[name](h, accuracy)) - truth(f, x, v)) for h in steps]
    assert slope(steps, errors) == pytest.approx(accuracy, abs=SLOPE_TOLERANCE[accuracy])


@pytest.mark.parametrize("name", DIFFERENCE)
@pytest.mark.parametrize(
    ("operator", "truth", "steps", "expected"),
    [
        (D(1), lambda f, x: f.partial(x, 1), np.geomspace(1e-10, 1e-7, 8), -1),
        (D(1, 1), lambda f, x: f.partial(x, 1, 1), np.geomspace(1e-7, 1e-5, 8), -2),
        (D(0, 1), lambda f, x: f.partial(x, 0, 1), np.geomspace(1e-7, 1e-5, 8), -2),
        (Laplacian(), lambda f, x: f.laplacian(x), np.geomspace(1e-7, 1e-5, 8), -2),
    ],
    ids=["first", "second", "mixed", "laplacian"],
)
def test_below_the_best_step_rounding_grows_as_the_power_of_the_order(operator, truth, steps, expected, name):
    # Rounding is random: 2000 points bring its rms within a few per cent, and eight steps fix the slope.
    f, x = SMOOTH["2d"], points(2000, 2)
    errors = [rms(evaluate(f, x, operator, DIFFERENCE[name](h, 2)) - truth(f, x)) for h in steps]
    assert slope(steps, errors) == pytest.approx(expected, abs=0.25)


@pytest.mark.parametrize("name", DIFFERENCE)
def test_differences_of_values_are_the_values(name):
    f, x = SMOOTH["2d-vector"], points(5, 2)
    value = evaluate(f, x, D(), DIFFERENCE[name](0.1, 2))
    assert torch.equal(value, f(x))


@pytest.mark.parametrize("engine", [FD(), EFD(), SFD()], ids=repr)
def test_the_value_needs_no_step(engine):
    f, x = SMOOTH["2d-vector"], points(5, 2)
    assert torch.equal(evaluate(f, x, D(), engine), f(x))


STEPS_BY_AXIS = {"FD": FD((0.1, 0.3)), "EFD": EFD({1: (0.1, 0.3), 2: (0.2, 0.05)})}


@pytest.mark.parametrize("engine", STEPS_BY_AXIS.values(), ids=STEPS_BY_AXIS)
def test_steps_for_each_axis(engine):
    """x + y² and its differences are exact, and the third power shows which step was used: (x³)' is off by h²."""
    first = (0.1, 0.3)
    second = (0.1, 0.3) if isinstance(engine, FD) else (0.2, 0.05)
    x = points(6, 2)

    def cubes(x):
        return (x**3).sum(1, keepdim=True)

    def fourths(x):
        return (x**4).sum(1, keepdim=True)

    for axis in (0, 1):
        column = x[:, axis : axis + 1]
        dx = evaluate(cubes, x, D(axis), engine)
        torch.testing.assert_close(dx, 3 * column**2 + first[axis] ** 2, rtol=1e-10, atol=1e-10)
        dxx = evaluate(fourths, x, D(axis, axis), engine)
        torch.testing.assert_close(dxx, 12 * column**2 + 2 * second[axis] ** 2, rtol=1e-10, atol=1e-10)
    laplacian = evaluate(fourths, x, Laplacian(), engine)
    expected = (12 * x**2).sum(1, keepdim=True) + 2 * (second[0] ** 2 + second[1] ** 2)
    torch.testing.assert_close(laplacian, expected, rtol=1e-10, atol=1e-10)
    mixed = evaluate(lambda x: x[:, :1] * x[:, 1:], x, D(0, 1), engine)
    torch.testing.assert_close(mixed, torch.ones(6, 1, dtype=x.dtype), rtol=1e-10, atol=1e-10)


def test_a_direction_is_followed_in_steps_of_each_axis():
    """Along an axis the step is that axis's own, whatever the length of the vector."""
    engine, x = FD((0.1, 0.3)), points(6, 2)
    for axis, h in enumerate((0.1, 0.3)):
        v = torch.zeros_like(x)
        v[:, axis] = 5.0
        value = evaluate(lambda x: (x**3).sum(1, keepdim=True), x, Along(v), engine)
        expected = 5 * (3 * x[:, axis : axis + 1] ** 2 + h**2)
        torch.testing.assert_close(value, expected, rtol=1e-10, atol=1e-10)


def burgers(u):
    return u.t + u * u.x - 0.01 * u.xx


def poisson(u, x, t):
    return u.xx + u.tt + torch.sin(x) * torch.sin(t)


def neumann(u, n):
    return u.along(n)


def robin(u, n):
    return u.along(n) + u


TWO_STEPS = {1: 1e-2, 2: 3e-2}
ROWS = [
    ("FD", FD(1e-2), burgers, 5),
    ("SFD", SFD(TWO_STEPS), burgers, 5),
    ("EFD", EFD(TWO_STEPS), burgers, 7),
    ("EFD with equal steps", EFD({1: 1e-2, 2: 1e-2}), burgers, 5),
    ("FD, accuracy 4", FD(1e-2, accuracy=4), burgers, 9),
    ("FD", FD(1e-2), poisson, 5),
    ("SFD", SFD(TWO_STEPS), poisson, 5),
    ("EFD", EFD(TWO_STEPS), poisson, 5),
    ("FD", FD(1e-2), neumann, 2),
    ("SFD", SFD(TWO_STEPS), neumann, 2),
    ("EFD", EFD(TWO_STEPS), neumann, 2),
    ("FD", FD(1e-2), robin, 3),
    ("SFD", SFD(TWO_STEPS), robin, 3),
    ("EFD", EFD(TWO_STEPS), robin, 3),
]


@pytest.mark.parametrize(
    ("engine", "equation", "rows"), [case[1:] for case in ROWS], ids=[f"{c[0]}: {c[2].__name__}" for c in ROWS]
)
def test_differences_are_one_forward_pass_with_no_row_too_many(engine, equation, rows):
    B = 20
    x = points(B, 2)
    model = Counted(mlp())
    # The probe for coupling would be counted here; it is tested separately.
    engine = replace(engine, coupled="ignore")
    data = {"n": vectors(x)} if equation in (neumann, robin) else {}
    Residual(equation, ("x", "t"), data=tuple(data))(model, x, engine, **data)
    assert model.rows == [rows * B]


def test_automatic_differentiation_is_one_forward_pass_of_the_batch():
    model = Counted(mlp())
    Residual(burgers, ("x", "t"))(model, points(20, 2), AD(coupled="ignore"))
    assert model.rows == [20]


def test_biharmonic_uses_the_thirteen_point_stencil_and_not_more():
    """Nine nodes on the axes and four off them; the mixed stencil's other five are among the nine."""
    model = Counted(mlp())
    evaluate(model, points(20, 2), Laplacian() @ Laplacian(), FD(0.1, coupled="ignore"))
    assert model.rows == [13 * 20]


def steps_used(engine, count=1):
    """The step at each point, read off the rows that the network gets for a first derivative at the origin."""
    rows = []

    def model(x):
        rows.append(x)
        return x[:, :1]

    evaluate(model, torch.zeros(count, 2, dtype=torch.float64), D(0), engine)
    below, above = rows[0].reshape(2, count, 2)
    assert torch.equal(above, -below)
    assert (above[:, 1] == 0).all()
    return above[:, 0].abs()


def test_random_steps_are_log_uniform_in_their_range():
    low, high = 1e-3, 1e-1
    steps = steps_used(SFD({1: high, 2: low}, coupled="ignore"), 20_000)
    # The ends are rounded to single precision.
    assert steps.min() >= low * (1 - 1e-6)
    assert steps.max() <= high * (1 + 1e-6)
    position = torch.log(steps / low) / np.log(high / low)
    probabilities = torch.tensor([0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0], dtype=torch.float64)
    # A quantile of 20000 samples has a standard deviation of at most 0.5 / sqrt(20000) = 0.0035.
    torch.testing.assert_close(position.quantile(probabilities), probabilities, rtol=0, atol=0.015)


def test_random_steps_differ_between_calls_and_points():
    engine = SFD((1e-3, 1e-1), coupled="ignore")
    first, second = steps_used(engine, 50), steps_used(engine, 50)
    assert not torch.isclose(first, second).any()
    assert len(first.unique()) == 50


def test_random_steps_follow_the_global_seed():
    engine = SFD((1e-3, 1e-1), coupled="ignore")
    torch.manual_seed(3)
    first = steps_used(engine, 50)
    torch.manual_seed(3)
    assert torch.equal(steps_used(engine, 50), first)


def test_a_generator_makes_random_steps_repeatable_by_themselves():
    def sequence(seed):
        engine = SFD((1e-3, 1e-1), generator=torch.Generator().manual_seed(7), coupled="ignore")
        torch.manual_seed(seed)
        state = torch.get_rng_state()
        used = torch.stack([steps_used(engine, 50) for _ in range(2)])
        assert torch.equal(torch.get_rng_state(), state)
        return used

    first = sequence(0)
    assert torch.equal(sequence(1), first)
    assert not torch.isclose(first[0], first[1]).any()


def test_all_orders_of_a_call_share_the_random_step():
    engine = SFD((0.1, 0.4), generator=torch.Generator().manual_seed(0))
    x = points(30, 1)
    first, second = evaluate(lambda x: x**3 + x**4, x, [D(0), D(0, 0)], engine)
    # The errors of (x³ + x⁴)' and (x³ + x⁴)'' are h²(1 + 4x) and 2h² exactly.
    from_first = (first - 3 * x**2 - 4 * x**3) / (1 + 4 * x)
    from_second = (second - 6 * x - 12 * x**2) / 2
    torch.testing.assert_close(from_first, from_second, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("engine", STEPS_BY_AXIS.values(), ids=STEPS_BY_AXIS)
def test_steps_for_each_axis_are_made_on_the_device_of_the_points(engine):
    x = torch.empty(5, 2, dtype=torch.float64, device="meta")
    value = evaluate(mlp().to("meta"), x, D(0) + Laplacian() + Along(x), engine)
    assert value.device.type == "meta"


@pytest.mark.parametrize("engine", [FD(1e-3), EFD({1: 1e-3, 2: 1e-2}), FD(1e-3, inside=lambda x: x[:, 0] - 9)])
def test_points_may_lie_in_memory_in_any_way(engine):
    model, rows = mlp(2, 1), points(7, 2)
    columns = rows.T.contiguous().T  # each input in one piece, as torch.stack(inputs).T has it
    repeated = rows[:1].expand(7, 2)
    for x in (columns, repeated, torch.cat([rows, rows], 1)[:, :2]):
        ours, same = (evaluate(model, y, [D(0), D(1, 1)], engine) for y in (x, x.contiguous()))
        for a, b in zip(ours, same, strict=True):
            assert torch.allclose(a, b, atol=1e-9)
