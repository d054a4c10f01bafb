"""The two laws by which jets pass through functions: the chain rule and the product rule, of all orders."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from dudx.engines.jet import Jet
from dudx.engines.jet_layout import Quadratic


def compose(jet: Jet, derivatives: Sequence[Tensor]) -> Jet:
    """φ(u) from φ(u), φ'(u), φ''(u), …, elementwise: the chain rule of all orders (Faà di Bruno)."""
    layout, s = jet.layout, jet.streams
    n = layout.directions
    blocks = [derivatives[1] * s[:n]] if n else []
    for k, p in layout.higher():
        blocks.append((derivatives[1] * s[layout.index(k, p)] + _beyond_linear(jet, derivatives, k, p)).unsqueeze(0))
    for place, operator in enumerate(layout.operators, layout.first_operator):
        total = derivatives[1] * s[place]
        if operator.quadratics:
            total = total + derivatives[2] * quadratic_form(s, operator.quadratics)
        for k, p, coefficient in operator.powers:
            total = total + coefficient * _beyond_linear(jet, derivatives, k, p)
        blocks.append(total.unsqueeze(0))
    return Jet(layout, derivatives[0], torch.cat(blocks))


def _beyond_linear(jet: Jet, derivatives: Sequence[Tensor], direction: int, order: int) -> Tensor:
    """The terms of ∂^order φ(u) other than φ'(u) ∂^order u."""
    total: Any = 0
    for parts, count in partitions(order):
        if len(parts) == 1:
            continue
        product: Any = count * derivatives[len(parts)]
        for part in parts:
            product = product * jet.streams[jet.layout.index(direction, part)]
        total = total + product
    return total


def quadratic_form(streams: Tensor, terms: Sequence[Quadratic]) -> Tensor:
    """Σ c ∂_i u ∂_j u; runs of squares with one coefficient are one reduction."""
    total: Any = 0
    at = 0
    while at < len(terms):
        first, second, coefficient = terms[at]
        end = at + 1
        if first == second:
            while end < len(terms) and terms[end] == (first + end - at, first + end - at, coefficient):
                end += 1
        run = end - at
        part = streams[first : first + run].square().sum(0) if run > 1 else streams[first] * streams[second]
        total = total + (part if coefficient == 1 else coefficient * part)
        at = end
    return total


def product(multiply: Callable[[Tensor, Tensor], Tensor], a: Jet, b: Jet, stacked: Callable[..., Tensor]) -> Jet:
    """A bilinear function of two jets: the product rule of all orders (Leibniz).

    `multiply` takes two tensors; `stacked(a, b)` does the same for a stack of tensors on either side (or both).
    """
    layout = a.layout
    n = layout.directions

    def order(jet: Jet, direction: int, p: int) -> Tensor:
        return jet.value if p == 0 else jet.streams[layout.index(direction, p)]

    both = stacked(a.streams, b.value, 0) + stacked(a.value, b.streams, 1)
    blocks = [both[:n]] if n else []
    for k, p in layout.higher():
        cross = sum(math.comb(p, j) * multiply(order(a, k, j), order(b, k, p - j)) for j in range(1, p))
        blocks.append((both[layout.index(k, p)] + cross).unsqueeze(0))
    for place, operator in enumerate(layout.operators, layout.first_operator):
        total = both[place]
        for i, j, coefficient in operator.quadratics:
            cross = multiply(a.streams[i], b.streams[j])
            cross = 2 * cross if i == j else cross + multiply(a.streams[j], b.streams[i])
            total = total + coefficient * cross
        for k, p, coefficient in operator.powers:
            for j in range(1, p):
                total = total + coefficient * math.comb(p, j) * multiply(order(a, k, j), order(b, k, p - j))
        blocks.append(total.unsqueeze(0))
    return Jet(layout, multiply(a.value, b.value), torch.cat(blocks))


_Partitions = tuple[tuple[tuple[int, ...], int], ...]


def partitions(order: int) -> _Partitions:
    """The ways to write `order` as a sum, each with the number of ways to group `order` things like that."""
    return _TABLE[order] if order < len(_TABLE) else _partitions(order)


def _partitions(order: int) -> _Partitions:
    def ways(rest: int, largest: int) -> list[tuple[int, ...]]:
        if rest == 0:
            return [()]
        return [(part, *tail) for part in range(min(rest, largest), 0, -1) for tail in ways(rest - part, part)]

    found = []
    for parts in ways(order, order):
        count = math.factorial(order)
        for part in set(parts):
            count //= math.factorial(part) ** parts.count(part) * math.factorial(parts.count(part))
        found.append((parts, count))
    return tuple(found)


#: For the usual orders beforehand: a cache is something that torch.compile does not look into, and warns of.
_TABLE = [_partitions(order) for order in range(9)]
