"""Tensor operations on fields: indices, writing in place, NumPy, tuples of fields, and what a field cannot do."""

import math

import numpy as np
import pytest
import torch
from by_hand import close, gradient
from helpers import mlp, points
from torch import nn

from dudx import AD, FD, Residual, Taylor
from dudx.errors import CompilationWarning, InputError


@pytest.fixture
def model():
    return mlp()


@pytest.fixture
def x():
    return points(8, 2).requires_grad_()


# -- indices -----------------------------------------------------------------------------------------------------

INDICES = {
    "int": (slice(None), 0),
    "negative": (slice(None), -1),
    "one column": (slice(None), slice(0, 1)),
    "some columns": (slice(None), slice(None, 1)),
    "last column": (slice(None), slice(-1, None)),
    "list": (slice(None), [1, 0]),
    "step": (slice(None), slice(None, None, 2)),
    "ellipsis": Ellipsis,
    "ellipsis and int": (Ellipsis, 1),
    "ellipsis and slice": (Ellipsis, slice(1, 2)),
    "all": slice(None),
    "all columns": (slice(None), slice(0, 2)),
    "new axis": (slice(None), None, 0),
}


@pytest.mark.parametrize("key", INDICES.values(), ids=INDICES)
def test_an_index_of_all_inputs_is_that_of_a_tensor(model, x, key) -> None:
    found = Residual(lambda u, points: u * points[key].reshape(8, -1).sum(1, keepdim=True), ("x", "y"))(model, x, AD())
    close(found, model(x) * x[key].reshape(8, -1).sum(1, keepdim=True))


def test_rows_of_an_output_are_taken(model, x) -> None:
    close(Residual(lambda u: u.x - u[0:1], ("x", "y"))(model, x, AD()), gradient(model(x), x)[0] - model(x)[0:1])


@pytest.mark.parametrize("key", INDICES.values(), ids=INDICES)
def test_an_index_is_differentiated(model, x, key) -> None:
    def weight(points):
        return points[key].square().reshape(8, -1).sum(1, keepdim=True)

    found = Residual(lambda u, points: (u * weight(points)).x, ("x", "y"))(model, x, AD())
    close(found, gradient(model(x) * weight(x), x)[0])


@pytest.mark.parametrize(
    "key", [(slice(None), 5), (slice(None), -3), (slice(None), slice(2, 3)), (slice(None), slice(5, 7)), 2.5, "a"]
)
def test_an_index_outside_of_a_field_is_refused(model, x, key) -> None:
    residual = Residual(lambda u, points: u * points[key].sum(), ("x", "y"))
    with pytest.raises(InputError, match=r"of shape \(8, 2\)"):
        residual(model, x, AD())


def test_a_field_is_iterated_over_as_a_tensor(model, x) -> None:
    found = Residual(lambda u, points: sum(points.T).unsqueeze(1) * u, ("x", "y"))(model, x, AD())
    close(found, x.sum(1, keepdim=True) * model(x))


def test_points_may_be_the_name_of_data(model, x) -> None:
    given = torch.rand(8, 1, dtype=torch.float64)
    found = Residual(lambda u, points: u * points, ("x", "y"), data=("points",))(model, x, AD(), points=given)
    close(found, model(x) * given)


# -- writing in place --------------------------------------------------------------------------------------------


def _assigned(v, u):
    v[:, 0] = 1.0
    return v


WRITING = {
    "mul_": lambda v, u: v.mul_(u),
    "add_": lambda v, u: v.add_(u),
    "clamp_": lambda v, u: v.clamp_(0, 1),
    "zero_": lambda v, u: v.zero_(),
    "relu_": lambda v, u: torch.relu_(v),
    "out": lambda v, u: torch.mul(u, u, out=v),
    "index": _assigned,
    "inplace=True": lambda v, u: nn.functional.relu(v, inplace=True),
    "inplace, by position": lambda v, u: nn.functional.relu(v, True),
    "a module": lambda v, u: nn.ReLU(inplace=True)(v),
}


@pytest.mark.parametrize("write", WRITING.values(), ids=WRITING)
def test_a_field_is_not_written_to(model, x, write) -> None:
    """Its derivatives would be those of what it was before."""
    residual = Residual(lambda u: write(u * u, u).x, ("x", "y"))
    with pytest.raises(InputError, match="cannot be written to"):
        residual(model, x, Taylor())


@pytest.mark.parametrize("compile", [False, True])
@pytest.mark.parametrize("name", ["n.mul_(2)", "n[0] = 3", "n.t().zero_()", "torch.exp(n, out=n)"])
def test_data_are_not_written_to(model, x, name, compile) -> None:
    """Each call would have other data than the one before."""

    def equation(u, n):
        exec(name, {"n": n, "torch": torch})
        return u.x * n

    n = torch.rand(8, 1, dtype=torch.float64)
    with pytest.raises(InputError, match="writes into its data"):
        Residual(equation, ("x", "y"), data=("n",), compile=compile)(model, x, AD(), n=n)


@pytest.mark.parametrize("name", ["numpy", "data_ptr", "untyped_storage"])
def test_the_memory_of_a_field_is_not_given_away(model, x, name) -> None:
    """It could be written to without a trace, and what is computed from it has no derivative."""
    with pytest.raises(InputError, match=f"{name} takes the values of a field out of torch"):
        Residual(lambda u: u.x + 0 * torch.as_tensor(getattr(u.detach(), name)()), ("x", "y"))(model, x, AD())


def test_plus_equals_makes_a_new_field(model, x) -> None:
    def equation(u):
        v = u * u
        v += u
        v *= u
        return v.x

    u = model(x)
    close(Residual(equation, ("x", "y"))(model, x, AD()), gradient(u**3 + u**2, x)[0])


def test_a_tensor_of_the_user_may_be_written_to(model, x) -> None:
    def equation(u):
        total = torch.zeros_like(u)
        total += u.x
        return total + u

    u = model(x)
    close(Residual(equation, ("x", "y"))(model, x, AD()), gradient(u, x)[0] + u)


def test_a_number_of_the_batch_is_not_written_into_a_tensor(model, x) -> None:
    def equation(u):
        mean = torch.zeros((), dtype=torch.float64)
        mean += u.mean()
        return (u - mean).x

    with pytest.raises(InputError, match="cannot be written to"):
        Residual(equation, ("x", "y"))(model, x, AD())


# -- a single point ----------------------------------------------------------------------------------------------


def test_data_of_a_single_point_are_no_constant(model) -> None:
    residual = Residual(lambda u, k: (k * u.x).x, ("x", "y"), data=("k",))
    with pytest.raises(InputError, match="single point"):
        residual(model, points(1, 2), AD(), k=torch.rand(1, 1, dtype=torch.float64))
    with pytest.raises(InputError, match="one value a point"):
        residual(model, points(8, 2), AD(), k=torch.rand(8, 1, dtype=torch.float64))


def test_what_was_recorded_at_a_single_point_is_recorded_again_at_several(model) -> None:
    """The mean of one value is that value: the mistake cannot be seen at a single point."""
    residual = Residual(lambda u: (u * u - (u * u).mean()).x, ("x", "y"))
    residual(model, points(1, 2), AD())
    with pytest.raises(InputError, match="mixes the samples"):
        residual(model, points(8, 2), AD())


@pytest.mark.parametrize(
    "constant",
    [0.3, torch.tensor(0.3, dtype=torch.float64), nn.Parameter(torch.tensor([0.3], dtype=torch.float64))],
    ids=["number", "tensor without axes", "parameter"],
)
def test_a_constant_is_one_at_a_single_point_too(model, constant) -> None:
    x = points(1, 2).requires_grad_()
    u_x = gradient(model(x), x)[0]
    close(Residual(lambda u: (constant * u.x).x, ("x", "y"))(model, x, AD()), 0.3 * gradient(u_x, x)[0])


def test_a_constant_with_an_axis_is_known_from_several_points(model) -> None:
    """The last slice of a batch may have one row."""
    constant, x = torch.tensor([[0.3]], dtype=torch.float64), points(9, 2)
    residual = Residual(lambda u: (constant * u.x).x, ("x", "y"))
    parts = [residual(model, part, AD()) for part in x.split(4)]
    close(torch.cat(parts), residual(model, x, AD()))


# -- NumPy and math ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda u: np.sin(u), r"np\.sin does not take fields; use torch\.sin"),
        (lambda u: np.mean(u), r"np\.mean does not take fields; use torch\.mean"),
        (lambda u: math.sin(u), r"torch\.sin\(u\) instead of math\.sin\(u\)"),
        (lambda u: np.asarray(u), "cannot become a NumPy array"),
        (lambda u: np.ones((8, 1)) * u, r"NumPy array of shape \(8, 1\)"),
        (lambda u: u * np.ones((8, 1)), r"NumPy array of shape \(8, 1\)"),
    ],
)
def test_functions_of_numpy_and_math_are_refused_in_a_sentence(model, x, function, message) -> None:
    with pytest.raises(InputError, match=message):
        Residual(function, ("x", "y"))(model, x, AD())


@pytest.mark.parametrize(
    "function",
    [
        lambda u: u % 2, lambda u: u // 2, lambda u: round(u), lambda u: 1j * u, lambda u: u + None, lambda u: u**[2],
        lambda u: f"{u:.2f}", lambda u: [1, 2][u], lambda u: u @ u, lambda u: u(), lambda u: u.backward(),
        lambda u: torch.cdist(u, u).x, lambda u: u == "a", lambda u: 1 / 0 * u, lambda u: torch.Tensor.mul_(u, u),
    ],
)  # fmt: skip
def test_whatever_fails_in_the_function_is_told_in_a_sentence(model, x, function) -> None:
    with pytest.raises(InputError, match=r"The function of the residual fails .* functions of torch") as caught:
        Residual(function, ("x", "y"))(model, x, AD())
    assert caught.value.__cause__ is not None


NUMBERS = [np.float64(0.25), np.float32(0.25), np.int64(4), np.array(0.25), np.sqrt(0.0625)]
EXPRESSIONS = {
    "left": lambda k, u: k * u.xx + u,
    "right": lambda k, u: u.xx * k + u,
    "sums": lambda k, u: k + u.x - k + (k - u),
    "over a number": lambda k, u: u.x / k,
    "over a field": lambda k, u: k / (2 + u * u),
    "powers": lambda k, u: (1 + u * u) ** k,
    "products": lambda k, u: k * (u * u) * k,
    "compared": lambda k, u: torch.where(u > k, u, u.x),
    "differentiated": lambda k, u: ((1 + u * u) ** k * k).x,
}


@pytest.mark.parametrize("number", NUMBERS, ids=lambda n: f"{type(n).__name__}-{n.dtype}")
@pytest.mark.parametrize("expression", EXPRESSIONS.values(), ids=EXPRESSIONS)
def test_numpy_numbers_are_numbers(model, x, number, expression) -> None:
    found, expected = (Residual(lambda u, k=k: expression(k, u), ("x", "y")) for k in (number, float(number)))
    close(found(model, x, AD()), expected(model, x, AD()))


# -- compiled ----------------------------------------------------------------------------------------------------

k = np.float64(0.25)
COMPILED = {
    "tuple, cat": lambda u, x: torch.cat((u.x, u.y), 1).sum(1, keepdim=True),
    "tuple, stack": lambda u, x: torch.stack((u.x, u * u)).sum(0),
    "tuple, hstack": lambda u, x: torch.hstack((u.x, torch.ones_like(x))).sum(1, keepdim=True),
    "tuple by name": lambda u, x: torch.cat(tensors=(u.x, u.y), dim=1).sum(1, keepdim=True),
    "NumPy on the left": lambda u, x: np.sqrt(0.0625) * u.xx + k * u,
    "NumPy elsewhere": lambda u, x: u.x / k + k - (1 + u * u) ** k + k / (2 + u),
    "NumPy without axes": lambda u, x: np.array(0.25) * u.xx + (1 + u * u) ** np.array(0.25),
    "index": lambda u, x, points: u.x * points[:, 0:1] + points[:, -1].unsqueeze(1),
}


@pytest.mark.usefixtures("only_traced")
@pytest.mark.parametrize("name", COMPILED)
@pytest.mark.filterwarnings("error::dudx.errors.CompilationWarning")
def test_compiled_as_eager(model, name) -> None:
    assert issubclass(CompilationWarning, UserWarning)
    x = points(8, 2)
    compiled, eager = (Residual(COMPILED[name], ("x", "y"), compile=c) for c in (True, False))
    torch.testing.assert_close(compiled(model, x, Taylor()), eager(model, x, Taylor()))
    assert compiled._compiled is not None
    assert compiled._compiled.graph_count == 1


@pytest.mark.parametrize("compile", [False, True])
def test_a_parameter_changed_before_the_backward_pass_is_noticed_or_does_not_matter(compile) -> None:
    model, x = mlp(width=6), points(8, 2)
    scale, rate, power = (nn.Parameter(torch.tensor(value).double()) for value in (0.5, 0.4, 0.3))
    parameters = [*model.parameters(), scale, rate, power]

    def equation(u, x):
        return scale * u.xx + u * u.y + torch.sin(rate * x) * torch.exp(power)

    residual = Residual(equation, ("x", "y"), compile=compile)
    expected = torch.autograd.grad(residual.loss(model, x, Taylor()), parameters)
    noticed = 0
    for parameter in parameters:
        loss, before = residual.loss(model, x, Taylor()), parameter.detach().clone()
        with torch.no_grad():
            parameter.mul_(1.5)
        try:
            found = torch.autograd.grad(loss, parameters)
        except RuntimeError as error:
            assert "modified by an inplace operation" in str(error)  # noqa: PT017
            noticed += 1
        else:
            torch.testing.assert_close(found, expected)
        with torch.no_grad():
            parameter.copy_(before)
    assert noticed


def test_networks_beside_the_model_have_columns_too() -> None:
    from dudx.optim import jacobian

    model, beside, x = mlp(width=4), mlp(width=3), points(5, 2)
    residual = Residual(lambda u, k: u.x + k * u, ("x", "y"), networks={"k": beside})
    count = sum(p.numel() for net in (model, beside) for p in net.parameters())
    assert jacobian(residual, model, x, FD(1e-3))[1].shape == (5, count)
    assert residual.jacobian(model, x, FD(1e-3))[1].shape == (5, count)
