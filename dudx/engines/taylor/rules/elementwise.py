"""Elementwise functions on jets, each given by its value and derivatives."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from dudx.engines.taylor.chain_and_product import compose
from dudx.engines.taylor.jet import Jet, constant
from dudx.engines.taylor.rule_helpers import Derivatives, elementwise, is_jet, values_of, written
from dudx.engines.taylor.rule_table import RULES, NotCoveredError, taylor_rule
from dudx.engines.taylor.rules.arithmetic import mul, with_axes


def polynomials(first: Sequence[float], orders: int) -> list[list[float]]:
    """Return the polynomials in y that equal y', y'', … if y' = P(y): y⁽ⁿ⁺¹⁾ = (d/dy y⁽ⁿ⁾) · P."""
    found = [list(first)]
    for _ in range(orders - 1):
        slope = [i * c for i, c in enumerate(found[-1])][1:]
        following = [0.0] * (len(slope) + len(first) - 1)
        for i, a in enumerate(slope):
            for j, b in enumerate(first):
                following[i + j] += a * b
        found.append(following)
    return found[:orders]


def horner(coefficients: Sequence[float], y: Tensor) -> Tensor:
    """Evaluate the polynomial with these coefficients, lowest power first."""
    total: Any = coefficients[-1]
    for c in reversed(coefficients[:-1]):
        total = total * y + c if c else total * y
    return total


@elementwise(torch.tanh, Tensor.tanh, F.tanh)
def tanh(x: Tensor, n: int) -> list[Tensor]:
    t = torch.tanh(x)
    # One kernel each, since small networks spend their time on launching kernels: 1 - t², and -2t (1 - t²).
    slope = torch.addcmul(t.new_ones(()), t, t, value=-1)
    if n <= 2:
        return [t, slope] if n < 2 else [t, slope, torch.addcmul(t.new_zeros(()), t, slope, value=-2)]
    # Every derivative has the first as a factor; factoring it out keeps precision where tanh is flat.
    reduced = polynomials([1, 0, -1], n)
    return [t, slope, -2 * t * slope, *(slope * horner(_divided(p), t) for p in reduced[2:])]


def _divided(coefficients: Sequence[float]) -> list[float]:
    """Divide a polynomial by 1 - y², which leaves no remainder."""
    quotient = [float(c) for c in coefficients[:2]]
    for c in coefficients[2:-2]:
        quotient.append(c + quotient[-2])
    return quotient


@elementwise(torch.sigmoid, Tensor.sigmoid, F.sigmoid)
def sigmoid(x: Tensor, n: int) -> list[Tensor]:
    s = torch.sigmoid(x)
    return [s, *(horner(p, s) for p in polynomials([0, 1, -1], n))]


@elementwise(torch.exp, Tensor.exp)
def exp(x: Tensor, n: int) -> list[Tensor]:
    return [torch.exp(x)] * (n + 1)


@elementwise(torch.expm1, Tensor.expm1)
def expm1(x: Tensor, n: int) -> list[Tensor]:
    return [torch.expm1(x), *[torch.exp(x)] * n]


@elementwise(torch.sin, Tensor.sin)
def sin(x: Tensor, n: int) -> list[Tensor]:
    s, c = torch.sin(x), torch.cos(x)
    return [(s, c, -s, -c)[k % 4] for k in range(n + 1)]


@elementwise(torch.cos, Tensor.cos)
def cos(x: Tensor, n: int) -> list[Tensor]:
    s, c = torch.sin(x), torch.cos(x)
    return [(c, -s, -c, s)[k % 4] for k in range(n + 1)]


@elementwise(torch.sinh, Tensor.sinh)
def sinh(x: Tensor, n: int) -> list[Tensor]:
    return [(torch.sinh(x), torch.cosh(x))[k % 2] for k in range(n + 1)]


@elementwise(torch.cosh, Tensor.cosh)
def cosh(x: Tensor, n: int) -> list[Tensor]:
    return [(torch.cosh(x), torch.sinh(x))[k % 2] for k in range(n + 1)]


@elementwise(torch.log, Tensor.log)
def log(x: Tensor, n: int) -> list[Tensor]:
    return [torch.log(x), *((-1) ** (k - 1) * math.factorial(k - 1) * x**-k for k in range(1, n + 1))]


@elementwise(torch.log1p, Tensor.log1p)
def log1p(x: Tensor, n: int) -> list[Tensor]:
    return [torch.log1p(x), *log(1 + x, n)[1:]]


def power(exponent: Any) -> Derivatives:
    """Return the derivatives of x ** exponent for a constant exponent, a number or a tensor."""

    def derivatives(x: Tensor, n: int) -> list[Tensor]:
        found, factor = [x**exponent], 1.0
        for k in range(1, n + 1):
            factor = factor * (exponent - k + 1)
            # Above the degree of a polynomial the power is infinite at 0, and 0 * inf would be NaN.
            if not isinstance(factor, Tensor):
                found.append(factor * x ** (exponent - k) if factor else torch.zeros_like(x))
            elif factor.requires_grad:  # its gradient needs all terms
                found.append(factor * x ** (exponent - k))
            else:
                found.append(factor * x ** torch.where(factor == 0, 0, exponent - k))
        return found

    return derivatives


elementwise(torch.sqrt, Tensor.sqrt)(power(0.5))
elementwise(torch.rsqrt, Tensor.rsqrt)(power(-0.5))
elementwise(torch.reciprocal, Tensor.reciprocal)(power(-1))
elementwise(torch.square, Tensor.square)(power(2))


@elementwise(torch.erf, Tensor.erf, torch.special.erf)
def erf(x: Tensor, n: int) -> list[Tensor]:
    bell = 2 / math.sqrt(math.pi) * torch.exp(-x * x)
    hermite = [torch.ones_like(x), 2 * x]
    for k in range(2, n + 1):
        hermite.append(2 * x * hermite[-1] - 2 * (k - 1) * hermite[-2])
    return [torch.erf(x), *((-1) ** k * hermite[k] * bell for k in range(n))]


@elementwise(torch.erfc, Tensor.erfc, torch.special.erfc)
def erfc(x: Tensor, n: int) -> list[Tensor]:
    return [torch.erfc(x), *(-slope for slope in erf(x, n)[1:])]


@taylor_rule(torch.hypot, Tensor.hypot)
def hypot(a: Any, b: Any) -> Jet:
    return torch.sqrt(a * a + b * b)  # type: ignore[return-value]


def _kinked(value: Tensor, slope: Tensor, n: int) -> list[Tensor]:
    """Return the derivatives of a piecewise linear function; at a kink the slope is that of autograd."""
    return [value, slope, *[torch.zeros_like(value)] * (n - 1)]


@elementwise(torch.relu, Tensor.relu)
def relu(x: Tensor, n: int) -> list[Tensor]:
    return _kinked(torch.relu(x), (x > 0).to(x.dtype), n)


@elementwise(torch.abs, torch.absolute, Tensor.abs, Tensor.absolute, Tensor.__abs__)
def absolute(x: Tensor, n: int) -> list[Tensor]:
    if x.is_complex():
        raise NotCoveredError
    return _kinked(torch.abs(x), torch.sign(x), n)


RULES[F.relu] = lambda x, inplace=False: written(x, RULES[torch.relu](x), inplace)


@taylor_rule(F.leaky_relu)
def leaky_relu(x: Jet, negative_slope: float = 0.01, inplace: bool = False) -> Jet:
    slope = torch.where(x.value > 0, torch.ones_like(x.value), torch.full_like(x.value, negative_slope))
    return written(x, compose(x, _kinked(slope * x.value, slope, x.layout.top)), inplace)


@taylor_rule(F.elu)
def elu(x: Jet, alpha: float = 1.0, inplace: bool = False) -> Jet:
    # The exponential may overflow where x is positive, so it is not computed there.
    decay = alpha * torch.exp(x.value.clamp(max=0))
    above = x.value > 0
    slope = torch.where(above, torch.ones_like(decay), decay)
    bent = torch.where(above, torch.zeros_like(decay), decay)
    return written(x, compose(x, [F.elu(x.value, alpha), slope, *[bent] * (x.layout.top - 1)]), inplace)


@taylor_rule(F.softplus)
def softplus(x: Jet, beta: float = 1.0, threshold: float = 20.0) -> Jet:
    n = x.layout.top
    linear_part = beta * x.value > threshold  # torch returns x there
    slopes = sigmoid(beta * x.value, n - 1)
    ends = [torch.ones_like(x.value), *[torch.zeros_like(x.value)] * (n - 1)]
    derivatives = [
        torch.where(linear_part, end, beta**k * slope) for k, (end, slope) in enumerate(zip(ends, slopes, strict=True))
    ]
    return compose(x, [F.softplus(x.value, beta, threshold), *derivatives])


@taylor_rule(F.logsigmoid)
def logsigmoid(x: Jet) -> Jet:
    return -F.softplus(-x)  # type: ignore[operator]


@taylor_rule(F.silu)
def silu(x: Jet, inplace: bool = False) -> Jet:
    return written(x, x * torch.sigmoid(x), inplace)  # type: ignore[arg-type]


@taylor_rule(F.mish)
def mish(x: Jet, inplace: bool = False) -> Jet:
    return written(x, x * torch.tanh(F.softplus(x)), inplace)  # type: ignore[arg-type]


@taylor_rule(F.gelu)
def gelu(x: Any, approximate: str = "none") -> Jet:
    if approximate == "tanh":
        return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))
    return 0.5 * x * (1 + torch.erf(x * math.sqrt(0.5)))


@taylor_rule(
    torch.div, torch.divide, torch.true_divide, Tensor.div, Tensor.divide, Tensor.true_divide, Tensor.__truediv__
)
def div(a: Any, b: Any, *, rounding_mode: str | None = None) -> Jet:
    if rounding_mode is not None:
        return torch.div(values_of(a), values_of(b), rounding_mode=rounding_mode).detach()  # type: ignore[return-value]
    if isinstance(b, Tensor) and not (b.is_floating_point() or b.is_complex()):
        b = b.to(a.dtype)  # the reciprocal of integers would have single precision
    return mul(a, torch.reciprocal(b)) if is_jet(b) else mul(a, 1 / b)


RULES[Tensor.__rtruediv__] = lambda a, b: div(b, a)


@taylor_rule(torch.remainder, Tensor.remainder, Tensor.__mod__)
def remainder(a: Any, b: Any) -> Jet:
    out = a - b * torch.div(values_of(a), values_of(b), rounding_mode="floor")
    return Jet(out.layout, torch.remainder(values_of(a), values_of(b)), out.streams)


RULES[Tensor.__rmod__] = lambda a, b: remainder(b, a)


@taylor_rule(torch.pow, Tensor.pow, Tensor.__pow__)
def pow_(base: Any, exponent: Any) -> Jet:
    if is_jet(exponent):
        return _exponential(base, exponent)
    if isinstance(exponent, Tensor):
        base = with_axes(base, exponent.ndim)
        exponent = exponent if exponent.is_floating_point() else exponent.to(base.dtype)
    return compose(base, power(exponent)(base.value, base.layout.top))


def _exponential(base: Any, exponent: Jet) -> Jet:
    """Return base ** exponent for a jet as the exponent."""
    if is_jet(base):
        power = torch.exp(exponent * torch.log(base))
        return Jet(power.layout, torch.pow(base.value, exponent.value), power.streams)  # type: ignore[union-attr]
    base = torch.as_tensor(base, dtype=None if isinstance(base, Tensor) else exponent.dtype, device=exponent.device)
    exponent = with_axes(exponent, base.ndim)
    value = torch.pow(base, exponent.value)
    # 0 ** t is 0 for t > 0, and so are its derivatives.
    rate = torch.log(torch.where(base == 0, torch.ones_like(base), base))
    return compose(exponent, [value * rate**k for k in range(exponent.layout.top + 1)])


RULES[Tensor.__rpow__] = lambda a, b: pow_(b, a)


@taylor_rule(torch.where)
def where(condition: Tensor, a: Any, b: Any) -> Jet:
    jet = a if is_jet(a) else b
    a, b = (side if is_jet(side) else constant(jet, side) for side in (a, b))
    ndim = max(condition.ndim, a.ndim, b.ndim)  # the axis of streams precedes those that broadcasting adds
    a, b = (with_axes(side, ndim) for side in (a, b))
    return Jet(jet.layout, torch.where(condition, a.value, b.value), torch.where(condition, a.full(), b.full()))
