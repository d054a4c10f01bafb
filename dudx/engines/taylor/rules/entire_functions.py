"""Functions whose formulas divide by x, although the functions are smooth at 0: sinc and modified Bessel functions.

They solve a differential equation x y'' + a y' + b x y = 0. Its power series gives all derivatives near 0; elsewhere
the equation, differentiated n times, gives each derivative from those before:

    x y⁽ⁿ⁺²⁾ + (n + a) y⁽ⁿ⁺¹⁾ + b x y⁽ⁿ⁾ + n b y⁽ⁿ⁻¹⁾ = 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from dudx.engines.taylor.rule_helpers import elementwise
from dudx.engines.taylor.rules.elementwise import horner

#: Use the series where |b| x² is below this value, and this many terms, of which the last is below rounding.
_SMALL, _TERMS = 4.0, 16


def _solution(
    x: Tensor, n: int, a: float, b: float, large: Sequence[Tensor], scale: float | Tensor = 1.0
) -> list[Tensor]:
    """Return scale · y, scale · y', … up to the n-th derivative of the solution y with y(0) = 1.

    Args:
        x: where to evaluate.
        n: number of derivatives.
        a: coefficient of the equation.
        b: coefficient of the equation.
        large: scale · y and scale · y' at x, used away from 0.
        scale: a factor that keeps large values finite.
    """
    coefficients = [1.0]
    for m in range(1, _TERMS + n // 2):
        coefficients.append(-b * coefficients[-1] / (2 * m * (2 * m - 1 + a)))
    small = abs(b) * x.detach().square() < _SMALL
    # Either formula is evaluated where it is used, as it might overflow elsewhere.
    near, far = torch.where(small, x, torch.zeros_like(x)), torch.where(small, torch.ones_like(x), x)
    away = list(large)
    for k in range(n - 1):
        below = k * b * away[k - 1] if k else 0.0
        away.append(-b * away[k] - ((k + a) * away[k + 1] + below) / far)
    return [torch.where(small, scale * _series(near, coefficients, k), away[k]) for k in range(n + 1)]


def _series(x: Tensor, coefficients: Sequence[float], order: int) -> Tensor:
    """Return the derivative of this order of Σ coefficients[m] x²ᵐ."""
    found = [math.perm(2 * m, order) * c for m, c in enumerate(coefficients) if 2 * m >= order]
    total = horner(found, x * x)
    return total * x if order % 2 else total


@elementwise(torch.sinc, Tensor.sinc, torch.special.sinc)
def sinc(x: Tensor, n: int) -> list[Tensor]:
    value = torch.sinc(x)
    far = torch.where(math.pi**2 * x.detach().square() < _SMALL, torch.ones_like(x), x)
    return _solution(x, n, 2.0, math.pi**2, (value, (torch.cos(math.pi * far) - value) / far))


@elementwise(torch.i0, Tensor.i0, torch.special.i0)
def i0(x: Tensor, n: int) -> list[Tensor]:
    return _solution(x, n, 1.0, -1.0, (torch.special.i0(x), torch.special.i1(x)))


@elementwise(torch.special.i1)
def i1(x: Tensor, n: int) -> list[Tensor]:
    return i0(x, n + 1)[1:]


def _scaled_i0(x: Tensor, n: int) -> list[Tensor]:
    """Return the derivatives of i0, each times exp(-|x|)."""
    return _solution(x, n, 1.0, -1.0, (torch.special.i0e(x), torch.special.i1e(x)), torch.exp(-x.abs()))


def _times_decay(x: Tensor, scaled: Sequence[Tensor]) -> list[Tensor]:
    """Return the derivatives of y exp(-|x|) from those of y, each times exp(-|x|): the product rule."""
    slope = -torch.sign(x)
    return [
        sum((math.comb(order, k) * slope ** (order - k) * scaled[k] for k in range(order)), scaled[order])
        for order in range(len(scaled))
    ]


@elementwise(torch.special.i0e)
def i0e(x: Tensor, n: int) -> list[Tensor]:
    return _times_decay(x, _scaled_i0(x, n))


@elementwise(torch.special.i1e)
def i1e(x: Tensor, n: int) -> list[Tensor]:
    return _times_decay(x, _scaled_i0(x, n + 1)[1:])
