"""Taylor where formulas divide by zero, change from piece to piece or cancel: right, or not finite with a warning.

The truth is computed by mpmath with 50 digits. Tolerances are relative to the largest derivative, as the formulas of
torch itself round in double precision.
"""

import mpmath
import pytest
import torch
import torch.nn.functional as F
from mpmath import mpf

import dudx
from dudx import D, Taylor, evaluate

NEAR_ZERO = (0.0, 1e-9, 1e-5, -1e-4, 1e-3, 0.1)


def number(value: float) -> torch.Tensor:
    return torch.tensor(value, dtype=torch.float64)


def matrix(*rows):
    return torch.stack([torch.cat(row, -1) for row in rows], -2)


def smooth_l1(x):
    return F.smooth_l1_loss(x, torch.zeros_like(x), reduction="none")


#: The function in torch, in mpmath, and the points.
FUNCTIONS = {
    "sinc": (torch.sinc, lambda x: mpmath.sincpi(x), (*NEAR_ZERO, 0.63, 0.64, 1.0, 5.5)),
    "special.sinc": (torch.special.sinc, lambda x: mpmath.sincpi(x), NEAR_ZERO),
    "i0": (torch.i0, lambda x: mpmath.besseli(0, x), (*NEAR_ZERO, 1.99, 2.01, -3.0)),
    "i1": (torch.special.i1, lambda x: mpmath.besseli(1, x), (*NEAR_ZERO, 1.99, 2.01, -3.0)),
    "i0e": (torch.special.i0e, lambda x: mpmath.exp(-x) * mpmath.besseli(0, x), (1e-9, 1e-3, 1.9, 3.0, 50.0)),
    "i1e": (torch.special.i1e, lambda x: mpmath.exp(-x) * mpmath.besseli(1, x), (1e-9, 1e-3, 1.9, 3.0, 50.0)),
    "xlogy": (lambda x: torch.xlogy(x, 2 + x), lambda x: x * mpmath.log(2 + x), NEAR_ZERO),
    "xlog1py": (lambda x: torch.special.xlog1py(x, x), lambda x: x * mpmath.log1p(x), NEAR_ZERO),
    "entr": (torch.special.entr, lambda x: -x * mpmath.log(x), (1e-9, 0.3)),
    "erfcx": (torch.special.erfcx, lambda x: mpmath.exp(x * x) * mpmath.erfc(x), (*NEAR_ZERO, 30.0, -2.0)),
    "log_ndtr": (torch.special.log_ndtr, lambda x: mpmath.log(mpmath.ncdf(x)), (*NEAR_ZERO, -5.0, -20.0)),
    "logaddexp": (lambda x: torch.logaddexp(x, 2 * x), lambda x: x + mpmath.log(1 + mpmath.exp(x)), NEAR_ZERO),
    "logaddexp of -inf": (lambda x: torch.logaddexp(x, torch.full_like(x.detach(), -torch.inf)), lambda x: x, (0.0,)),
    "logsumexp with -inf": (
        lambda x: torch.logsumexp(torch.cat([x, 2 * x, 0 * x - torch.inf], -1), -1, keepdim=True),
        lambda x: x + mpmath.log(1 + mpmath.exp(x)),
        NEAR_ZERO,
    ),
    "hypot": (lambda x: torch.hypot(x, 1 + 0 * x), lambda x: mpmath.sqrt(1 + x * x), NEAR_ZERO),
    "atan2, right": (lambda x: torch.atan2(x, 1 + 0 * x), mpmath.atan, NEAR_ZERO),
    "atan2, left": (lambda x: torch.atan2(x, 0 * x - 1), lambda x: mpmath.pi - mpmath.atan(x), NEAR_ZERO),
    "atan2, top": (lambda x: torch.atan2(1 + 0 * x, x), lambda x: mpmath.pi / 2 - mpmath.atan(x), NEAR_ZERO),
    "softplus": (F.softplus, lambda x: mpmath.log1p(mpmath.exp(x)), (*NEAR_ZERO, 19.99, 20.0, 20.01, -40.0)),
    "logsigmoid": (F.logsigmoid, lambda x: -mpmath.log1p(mpmath.exp(-x)), (*NEAR_ZERO, 19.0, -19.99, -30.0)),
    "huber": (lambda x: F.huber_loss(x, torch.zeros_like(x), reduction="none"), lambda x: x * x / 2, (0.0, -0.5, 0.99)),
    "huber, outside": (lambda x: F.huber_loss(x, torch.zeros_like(x), reduction="none"), lambda x: x - 0.5, (1.5,)),
    "smooth L1": (smooth_l1, lambda x: x * x / 2, (0.0, -0.5, 0.99)),
    "cube": (lambda x: x**3, lambda x: x**3, (*NEAR_ZERO, -2.0)),
    "cube, by a tensor": (lambda x: x ** number(3.0), lambda x: x**3, (*NEAR_ZERO, -2.0)),
    "float_power": (lambda x: torch.float_power(x, 3), lambda x: x**3, (*NEAR_ZERO, -2.0)),
    "to the power 0": (lambda x: x**0, lambda x: mpf(1) + 0 * x, NEAR_ZERO),
    "zero to a power": (lambda x: torch.pow(number(0.0), 1 + x), lambda x: mpf(0), NEAR_ZERO),
    "number zero to a power": (lambda x: 0.0 ** (1 + x), lambda x: mpf(0), NEAR_ZERO),
    "power of two functions": (lambda x: (1 + x) ** x, lambda x: (1 + x) ** x, NEAR_ZERO),
    "product with zeros": (
        lambda x: torch.cat([x, 2 * x, 1 + x], -1).prod(-1, keepdim=True), lambda x: 2 * x * x * (1 + x), NEAR_ZERO,
    ),
    "running product with zeros": (
        lambda x: torch.cumprod(torch.cat([x, 2 * x, 1 + x], -1), -1)[:, 2:], lambda x: 2 * x * x * (1 + x), NEAR_ZERO,
    ),
    "determinant of zeros": (
        lambda x: torch.linalg.det(matrix([x, 0 * x], [0 * x, x])).unsqueeze(1), lambda x: x * x, NEAR_ZERO,
    ),
    "singular determinant": (
        lambda x: torch.det(matrix([x, 0 * x, x], [0 * x, x, x], [x, x, 1 + 0 * x])).unsqueeze(1),
        lambda x: x * x - 2 * x**3,
        NEAR_ZERO,
    ),
    "variance of equal numbers": (
        lambda x: torch.cat([x, -x], -1).var(-1, keepdim=True), lambda x: 2 * x * x, NEAR_ZERO,
    ),
    "norm": (
        lambda x: torch.linalg.norm(torch.cat([x, 1 + x], -1), dim=-1, keepdim=True),
        lambda x: mpmath.sqrt(x * x + (1 + x) ** 2), NEAR_ZERO,
    ),
    "norm of order 4": (
        lambda x: torch.linalg.vector_norm(torch.cat([x, 1 + x], -1), 4, -1, keepdim=True),
        lambda x: mpmath.root(x**4 + (1 + x) ** 4, 4), NEAR_ZERO,
    ),
    "tanhshrink": (F.tanhshrink, lambda x: x - mpmath.tanh(x), NEAR_ZERO),
    "mish": (F.mish, lambda x: x * mpmath.tanh(mpmath.log1p(mpmath.exp(x))), (*NEAR_ZERO, 25.0)),
    "softmax with -inf": (
        lambda x: torch.softmax(torch.cat([x, 2 * x, 0 * x - torch.inf], -1), -1)[:, :1],
        lambda x: 1 / (1 + mpmath.exp(x)), NEAR_ZERO,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_derivatives_at_special_points_are_right(name):
    function, truth, points = FUNCTIONS[name]
    x = torch.tensor(points, dtype=torch.float64).unsqueeze(1)
    found = evaluate(function, x, [D(*[0] * order) for order in range(1, 5)], Taylor(coupled="ignore"))
    with mpmath.workdps(50):
        true = [[float(mpmath.diff(truth, mpf(point), order)) for point in points] for order in range(1, 5)]
    for ours, exact in zip(found, torch.tensor(true, dtype=torch.float64), strict=True):
        assert ((ours.flatten() - exact).abs() <= 1e-6 * (1 + exact.abs())).all(), (ours.flatten(), exact)


@pytest.mark.parametrize("function", [torch.sinc, torch.i0, torch.special.i1, torch.special.i0e])
def test_gradients_in_the_points_agree_with_the_next_derivative(function):
    x = torch.tensor([[0.0], [1e-6], [0.3], [2.5]], dtype=torch.float64, requires_grad=True)
    second, third = evaluate(function, x, [D(0, 0), D(0, 0, 0)], Taylor(coupled="ignore"))
    (gradient,) = torch.autograd.grad(second.sum(), x)
    assert torch.allclose(gradient, third, atol=1e-9)


#: Smooth functions written with one that has no derivative at the origin, and functions that have none themselves.
SINGULAR = {
    "squared norm": lambda x: torch.exp(-(torch.norm(x, dim=1, keepdim=True) ** 2)),
    "squared vector norm": lambda x: torch.exp(-(torch.linalg.norm(x, dim=1, keepdim=True) ** 2)),
    "hypot": lambda x: torch.hypot(x[:, :1], x[:, 1:]) ** 2,
    "angle": lambda x: torch.atan2(x[:, :1], x[:, 1:]),
    "root": lambda x: torch.sqrt(x[:, :1] ** 4) + x[:, 1:],
    "deviation": lambda x: x.std(1, keepdim=True),
    "distance": lambda x: torch.cdist(x, torch.zeros(1, 2, dtype=x.dtype)),
    "power": lambda x: x[:, :1] ** (2 + x[:, 1:]),
}


#: Functions of which torch takes the derivative 0 at such points.
ZERO_IN_TORCH = ("deviation", "distance")


@pytest.mark.parametrize(
    ("name", "engine"),
    [(name, Taylor()) for name in SINGULAR] + [(name, dudx.AD()) for name in SINGULAR if name not in ZERO_IN_TORCH],
)
def test_what_is_not_finite_is_reported(name, engine):
    function = SINGULAR[name]

    def network(x):
        return function(x)

    x = torch.tensor([[0.5, 0.25], [0.0, 0.0]], dtype=torch.float64)
    with pytest.warns(dudx.errors.NotFiniteWarning, match="1 of 2 points .the first is row 1."):
        found = evaluate(network, x, dudx.Laplacian(), engine)
    assert torch.isfinite(found[0]).all()
    assert not torch.isfinite(found[1]).all()
