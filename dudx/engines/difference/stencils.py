"""Difference stencils: integer offsets and exact rational weights, with no floating point and no torch."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from fractions import Fraction
from functools import cache
from math import factorial

Stencil = dict[tuple[int, ...], Fraction]


@cache
def central(order: int, accuracy: int) -> dict[int, Fraction]:
    """Weights by offset of the shortest central stencil for one variable, for a step of one.

    A central stencil gains one order by symmetry, so its half-width is ⌈order/2⌉ - 1 + accuracy/2.
    """
    half = reach(order, accuracy)
    return weights(range(-half, half + 1), order)


@cache
def one_sided(order: int, accuracy: int, side: int) -> dict[int, Fraction]:
    """Weights by offset of the shortest stencil that looks one way only: from the point to `side`, +1 or -1."""
    return weights([side * k for k in range(reach(order, accuracy, side) + 1)], order)


def reach(order: int, accuracy: int, side: int = 0) -> int:
    """How many steps away the furthest node lies."""
    if order == 0:
        return 0
    return order + accuracy - 1 if side else (order + 1) // 2 - 1 + accuracy // 2


def weights(offsets: Iterable[int], order: int) -> dict[int, Fraction]:
    """The weights for any set of different offsets, as accurate as so many can be.

    They solve Σ w_k k^j = j! [j = order] for all j the stencil can satisfy (the moment conditions).
    """
    offsets = list(offsets)
    moments = [[Fraction(k) ** j for k in offsets] for j in range(len(offsets))]
    target = [Fraction(factorial(order) if j == order else 0) for j in range(len(offsets))]
    return {k: w for k, w in zip(offsets, _solve(moments, target), strict=True) if w}


@cache
def tensor_product(orders: tuple[int, ...], accuracy: int, sides: tuple[int, ...] | None = None) -> Stencil:
    """The stencil of a mixed derivative: the product of a stencil for each variable, central or to its side."""
    looks = sides or (0,) * len(orders)
    factors = [
        (one_sided(order, accuracy, side) if side else central(order, accuracy)).items()
        for order, side in zip(orders, looks, strict=True)
    ]
    stencil: Stencil = {}
    for nodes in itertools.product(*factors):
        weight = Fraction(1)
        for _, factor in nodes:
            weight *= factor
        stencil[tuple(offset for offset, _ in nodes)] = weight
    return stencil


def _solve(matrix: list[list[Fraction]], right: list[Fraction]) -> list[Fraction]:
    """Gauss-Jordan elimination in exact arithmetic; the matrix is a Vandermonde matrix, hence regular."""
    rows = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    size = len(rows)
    for column in range(size):
        pivot = next(r for r in range(column, size) if rows[r][column])
        rows[column], rows[pivot] = rows[pivot], rows[column]
        rows[column] = [value / rows[column][column] for value in rows[column]]
        for r in range(size):
            if r != column and rows[r][column]:
                rows[r] = [a - rows[r][column] * b for a, b in zip(rows[r], rows[column], strict=True)]
    return [row[-1] for row in rows]
