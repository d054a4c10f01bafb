"""The values of residuals: functions of torch, tensors beside fields, several outputs, data and constants."""

import numpy as np
import pytest
import torch
from by_hand import asked, close, gradient
from helpers import EXACT, Counted, every_engine, mlp, parameter_gradients, points
from torch import nn

from dudx import AD, FD, Along, D, Residual
from dudx.errors import InputError

# -- values ------------------------------------------------------------------------------------------------------


@pytest.fixture
def model():
    return mlp()


@pytest.fixture
def x():
    return points(8, 2).requires_grad_()


FUNCTIONS = {
    "sin": (lambda u: torch.sin(u) + u.t, lambda u, ux, ut: torch.sin(u) + ut),
    "exp method": (lambda u: u.exp() * u.x, lambda u, ux, ut: u.exp() * ux),
    "power": (lambda u: u**2 - u.x**3, lambda u, ux, ut: u**2 - ux**3),
    "power of a number": (lambda u: 2**u + u.x, lambda u, ux, ut: 2**u + ux),
    "one over": (lambda u: 1 / (3 + u) + u.x, lambda u, ux, ut: 1 / (3 + u) + ux),
    "field over field": (lambda u: u.x / (3 + u), lambda u, ux, ut: ux / (3 + u)),
    "tensor over field": (
        lambda u: torch.full((8, 1), 2.0, dtype=torch.float64) / (3 + u),
        lambda u, ux, ut: 2 / (3 + u),
    ),
    "abs": (lambda u: abs(u.x) - torch.abs(u), lambda u, ux, ut: ux.abs() - u.abs()),
    "maximum": (lambda u: torch.maximum(u, u.x), lambda u, ux, ut: torch.maximum(u, ux)),
    "where": (lambda u: torch.where(u > 0, u.x, u.t), lambda u, ux, ut: torch.where(u > 0, ux, ut)),
    "where, tensor first": (
        lambda u: torch.where(torch.zeros(8, 1, dtype=torch.float64) <= u, u.x, u.t),
        lambda u, ux, ut: torch.where(u >= 0, ux, ut),
    ),
    "comparisons of fields": (
        lambda u: torch.where(torch.logical_or(u < u.x, u.x >= u.t), u, u.x),
        lambda u, ux, ut: torch.where((u < ux) | (ux >= ut), u, ux),
    ),
    "conditions joined": (
        lambda u: torch.where((u < u.x) & (u.x >= u.t) | ~(u > 0), u, u.x),
        lambda u, ux, ut: torch.where((u < ux) & (ux >= ut) | ~(u > 0), u, ux),
    ),
    "conditions joined, tensor first": (
        lambda u: torch.where(torch.ones(8, 1, dtype=torch.bool) & (u < u.x), u, u.x),
        lambda u, ux, ut: torch.where(u < ux, u, ux),
    ),
    "truth joined": (
        lambda u: torch.where(False | (True & (u < u.x)), u, u.x),
        lambda u, ux, ut: torch.where(u < ux, u, ux),
    ),
    "equality": (lambda u: torch.where(u == u.x, u, u.t), lambda u, ux, ut: ut),
    "inequality": (lambda u: torch.where(u != u.x, u, u.t), lambda u, ux, ut: u),
    "list of fields": (
        lambda u: torch.cat([u.x, u.t], dim=1).square().sum(1, keepdim=True),
        lambda u, ux, ut: ux**2 + ut**2,
    ),
    "named argument": (
        lambda u: torch.clamp(u.x, min=-0.01, max=0.01),
        lambda u, ux, ut: torch.clamp(ux, min=-0.01, max=0.01),
    ),
    "linear parts of products": (
        lambda u: (u.x + 2 * u.t - 1) * (u - 3) - u.t,
        lambda u, ux, ut: (ux + 2 * ut - 1) * (u - 3) - ut,
    ),
    "functional": (lambda u: nn.functional.softplus(u) * u.t, lambda u, ux, ut: nn.functional.softplus(u) * ut),
    "item": (lambda u: u.x[:, 0:1] - u.t[:, :1], lambda u, ux, ut: ux - ut),
}


@pytest.mark.parametrize(("function", "by_hand"), FUNCTIONS.values(), ids=FUNCTIONS)
def test_torch_functions_and_arithmetic(model, x, function, by_hand):
    u = model(x)
    expected = by_hand(u, *gradient(u, x))
    close(Residual(function, ("x", "t"))(model, x, AD()), expected)


ones = torch.ones(8, 1, dtype=torch.float64)
LEFT = {
    "times": (lambda u: 2 * ones * u.x, lambda u, ux, ut: 2 * ux, [D(0)]),
    "minus": (lambda u: ones - u.x, lambda u, ux, ut: 1 - ux, [-D(0)]),
    "plus": (lambda u: ones + u.t, lambda u, ux, ut: 1 + ut, [D(1)]),
    "scalar tensor": (lambda u: torch.tensor(0.5) * u.x - u.t, lambda u, ux, ut: 0.5 * ux - ut, [D(0), -D(1)]),
    "minus, then more": (lambda u: ones - u.x - u.t, lambda u, ux, ut: 1 - ux - ut, [-D(0) - D(1)]),
    "plus, then more": (lambda u: ones + u.x - 2 * u.t, lambda u, ux, ut: 1 + ux - 2 * ut, [D(0) - 2 * D(1)]),
    "on the right": (lambda u: u.x - ones + u.t, lambda u, ux, ut: ux - 1 + ut, [D(0) + D(1)]),
}


@pytest.mark.parametrize(("function", "by_hand", "operators"), LEFT.values(), ids=LEFT)
def test_tensors_on_the_left(model, x, function, by_hand, operators):
    u = model(x)
    residual = Residual(function, ("x", "t"))
    close(residual(model, x, AD()), by_hand(u, *gradient(u, x)))
    # A tensor that is added leaves the derivatives one request; a tensor that multiplies needs its own.
    assert residual.operators(x) == operators


def test_inputs_by_name_are_the_columns_of_the_points(model, x):
    def equation(u, t, x):
        return u.t + torch.sin(x) * u.x - t

    u = model(x)
    ux, ut = gradient(u, x)
    close(Residual(equation, ("x", "t"))(model, x, AD()), ut + torch.sin(x[:, :1]) * ux - x[:, 1:])


def test_names_of_inputs_may_be_longer(model, x):
    def equation(u, time, depth):
        return u.time + u.depth - 0.1 * u.depthdepth + u.d("time", "depth") + time * depth + u.depthtime

    u = model(x)
    ud, ut = gradient(u, x)
    expected = ut + ud - 0.1 * gradient(ud, x)[0] + 2 * gradient(ud, x)[1] + x[:, :1] * x[:, 1:]
    residual = Residual(equation, ("depth", "time"))
    close(residual(model, x, AD()), expected)
    assert residual.operators(x) == [D(1) + D(0) - 0.1 * D(0, 0) + 2 * D(0, 1)]


def test_a_name_that_begins_another_name():
    assert asked(lambda u: u.xx1, ("x", "x1")) == [D(0, 1)]
    assert asked(lambda u: u.x1x, ("x", "x1")) == [D(0, 1)]
    # An ambiguous name is read as the longer one; `d` is unambiguous.
    assert asked(lambda u: u.xx, ("x", "xx")) == [D(1)]
    assert asked(lambda u: u.d("x", "x"), ("x", "xx")) == [D(0, 0)]


def test_derivatives_win_over_methods_of_tensors_with_the_same_name():
    assert asked(lambda u: u.t, ("x", "t")) == [D(1)]


def test_several_outputs_and_several_equations(x):
    model = mlp(outputs=3)

    def stokes(u, v, p):
        return u.x + v.t, u.laplacian() - p.x + v * u.t, p * 2 - v.xt

    u, v, p = model(x).split(1, dim=1)
    (ux, ut), (vx, vt), (px, _) = (gradient(column, x) for column in (u, v, p))
    expected = (ux + vt, gradient(ux, x)[0] + gradient(ut, x)[1] - px + v * ut, p * 2 - gradient(vx, x)[1])
    computed = Residual(stokes, ("x", "t"))(model, x, AD())
    assert isinstance(computed, tuple)
    assert len(computed) == 3
    for found, wanted in zip(computed, expected, strict=True):
        close(found, wanted)


def test_several_outputs_in_one_linear_expression(x):
    """An operator on two outputs is one request; divergence is a sum over outputs."""
    residual = Residual(lambda u, v: u.x + v.t, ("x", "t"))
    model = mlp(outputs=2)
    u, v = model(x).split(1, dim=1)
    close(residual(model, x, AD()), gradient(u, x)[0] + gradient(v, x)[1])
    assert Residual(lambda u, v: u.x * v.x, ("x", "t")).operators(x) == [D(0)]


def test_normals_are_data(model, x):
    normals = torch.nn.functional.normalize(points(8, 2, seed=5))
    residual = Residual(lambda u, n: u.along(n) + 0.5 * u, ("x", "t"), data=("n",))
    u = model(x)
    ux, ut = gradient(u, x)
    close(residual(model, x, AD(), n=normals), normals[:, :1] * ux + normals[:, 1:] * ut + 0.5 * u)
    other = normals.flip(1)
    close(residual(model, x, AD(), n=other), other[:, :1] * ux + other[:, 1:] * ut + 0.5 * u)
    assert residual.operators(x, n=normals) == [Along(normals) + 0.5 * D()]


def test_data_may_be_values(model, x):
    source = points(8, 1, seed=6)
    u = model(x)
    residual = Residual(lambda u, f: u.x - f, ("x", "t"), data=("f",))
    close(residual(model, x, AD(), f=source), gradient(u, x)[0] - source)


def test_a_direction_may_be_computed_from_the_inputs(model, x):
    residual = Residual(lambda u, x, t: u.along(torch.cat([-t, x], dim=1)), ("x", "t"))
    u = model(x)
    ux, ut = gradient(u, x)
    close(residual(model, x, AD()), -x[:, 1:] * ux + x[:, :1] * ut)


# -- constants ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", every_engine(2e-2, 6))
def test_a_constant_to_be_learned_gets_its_gradient(name):
    engine = every_engine(2e-2, 6)[name]
    model, x = mlp(), points(8, 2).requires_grad_()
    k = nn.Parameter(torch.tensor(0.3, dtype=torch.float64))
    residual = Residual(lambda u: u.t - k * u.xx, ("x", "t"))
    (found,) = torch.autograd.grad(residual(model, x, engine).square().sum(), k)
    u = model(x)
    ux, ut = gradient(u, x)
    uxx = gradient(ux, x)[0]
    expected = (-2 * (ut - k * uxx) * uxx).sum()
    # At this step and accuracy the differences are exact to about 1e-9.
    torch.testing.assert_close(found, expected.detach(), rtol=1e-6, atol=0)


def test_a_constant_to_be_learned_does_not_change_the_gradient_of_the_network(model, x):
    k = nn.Parameter(torch.tensor(0.3, dtype=torch.float64))
    learned = Residual(lambda u: u.t - k * u.xx, ("x", "t"))(model, x, AD()).square().mean()
    fixed = Residual(lambda u: u.t - 0.3 * u.xx, ("x", "t"))(model, x, AD()).square().mean()
    close(parameter_gradients(learned, model), parameter_gradients(fixed, model))


def test_constants_of_the_closure_may_change_between_calls(model, x):
    nu = 0.1
    residual = Residual(lambda u: u.t - nu * u.xx, ("x", "t"))
    u = model(x)
    ux, ut = gradient(u, x)
    uxx = gradient(ux, x)[0]
    for nu in (0.1, 0.7, 0.0):
        close(residual(model, x, AD()), ut - nu * uxx)
        # The plan of the differences is cached, and must not be that of the constant before.
        torch.testing.assert_close(residual(model, x, FD(2e-2, accuracy=6)), ut - nu * uxx, rtol=1e-7, atol=1e-8)


def test_default_parameters_are_left_alone(model, x):
    def equation(u, nu=0.25, *, shift=2.0):
        return u.t - nu * u.xx + shift

    u = model(x)
    ux, ut = gradient(u, x)
    residual = Residual(equation, ("x", "t"))
    assert residual.outputs == ("u",)
    close(residual(model, x, AD()), ut - 0.25 * gradient(ux, x)[0] + 2.0)


@pytest.mark.parametrize("number", [np.float64(0.25), np.float32(0.25), np.int64(4), 4, True], ids=lambda n: repr(n))
def test_numpy_constants(model, x, number):
    u = model(x)
    ux, ut = gradient(u, x)
    value = float(number)
    residual = Residual(lambda u: number * u.x + u.t * number + number - u.t / number, ("x", "t"))
    close(residual(model, x, AD()), value * ux + ut * value + value - ut / value)
    assert len(residual.operators(x)) == 1
    assert type(number * ut) is torch.Tensor


# -- engines and modes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", EXACT.values(), ids=EXACT)
def test_navier_stokes_by_every_exact_engine(engine):
    model, x = mlp(inputs=3, outputs=3), points(5, 3).requires_grad_()

    def equations(u, v, p):
        return (
            u.t + u * u.x + v * u.y + p.x - 0.01 * u.laplacian("x", "y"),
            v.t + u * v.x + v * v.y + p.y - 0.01 * (v.xx + v.yy),
            u.x + v.y,
        )

    u, v, p = model(x).split(1, dim=1)
    (ux, uy, ut), (vx, vy, vt), (px, py, _) = (gradient(column, x) for column in (u, v, p))
    expected = (
        ut + u * ux + v * uy + px - 0.01 * (gradient(ux, x)[0] + gradient(uy, x)[1]),
        vt + u * vx + v * vy + py - 0.01 * (gradient(vx, x)[0] + gradient(vy, x)[1]),
        ux + vy,
    )
    computed = Residual(equations, ("x", "y", "t"))(model, x, engine)
    for found, wanted in zip(computed, expected, strict=True):
        close(found, wanted)
        close(
            parameter_gradients(found.square().mean(), model),
            parameter_gradients(wanted.square().mean(), model),
        )


def test_the_function_is_called_twice_and_the_network_once(x):
    model, calls = Counted(mlp()), []

    def equation(u):
        calls.append(u)
        return u * u.x + u.t

    Residual(equation, ("x", "t"))(model, x, AD(coupled="ignore"))
    assert len(calls) == 2
    assert model.rows == [8]


def test_a_residual_without_grad_carries_no_graph(model, x):
    with torch.no_grad():
        value = Residual(lambda u: u.t + u * u.x, ("x", "t"))(model, x, AD())
    assert not value.requires_grad


def test_a_function_that_asks_for_more_the_second_time_is_refused(model, x):
    seen = []

    def equation(u):
        seen.append(u)
        return u.x if len(seen) == 1 else u.x + torch.sin(u)

    with pytest.raises(InputError, match="must not branch"):
        Residual(equation, ("x", "t"))(model, x, AD())


@pytest.mark.parametrize("key", [slice(None), (slice(None), slice(0, 1)), (slice(None), slice(None, 1))])
def test_the_only_column_is_the_field_itself(key) -> None:
    x = torch.rand(10, 1, dtype=torch.float64)
    found = Residual(lambda u: u[key].xx + u.x[key].x, inputs=("x",))(lambda x: x**3, x, AD())
    torch.testing.assert_close(found, 12 * x)


def test_some_rows_of_a_field_are_no_residual() -> None:
    with pytest.raises(InputError, match=r"one value a point, shape \(10, 1\); got shape \(5, 1\)"):
        Residual(lambda u: u[:5, 0:1].x, inputs=("x",))(torch.sin, torch.rand(10, 1), AD())
