"""Propagation of jets through functions: the chain rule and the product rule, of all orders."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor, addcmul

from dudx.engines.taylor.jet import Jet
from dudx.engines.taylor.stream_layout import Layout
from dudx.engines.taylor.symbols import Product


class _Separated:
    """The streams of a jet as single tensors, split in one operation: autograd joins their gradients in one too."""

    def __init__(self, layout: Layout, streams: Tensor):
        self.first, *self.higher = streams.split([layout.unmixed, *[1] * (layout.streams - layout.unmixed)])
        self._each: tuple[Tensor, ...] | None = None

    def __getitem__(self, number: int) -> Tensor:
        """Return one stream."""
        n = len(self.first)
        if number >= n:
            return self.higher[number - n][0]
        if self._each is None:
            self._each = self.first.unbind(0)
        return self._each[number]


def compose(jet: Jet, derivatives: Sequence[Tensor]) -> Jet:
    """Return the jet of φ(u), elementwise, from φ(u), φ'(u), φ''(u), …: the chain rule of all orders (Faà di Bruno)."""
    layout = jet.layout
    s = _Separated(layout, jet.streams)
    known: dict[tuple[int, ...], Tensor] = {}
    parts = [derivatives[1] * s.first] if layout.unmixed else []
    for stream, mixing in zip(s.higher, layout.mixing[layout.unmixed :], strict=True):
        total = derivatives[1] * stream
        for derivative, products in zip(derivatives[2:], mixing, strict=False):
            if len(products) == 1:  # addcmul multiplies by the coefficient at no cost
                ((coefficient, factors),) = products
                total = addcmul(total, derivative, _multiplied(s, factors, known), value=coefficient)
            elif products:
                total = addcmul(total, derivative, _combination(s, products, known))
        parts.append(total)
    return Jet(layout, derivatives[0], *parts)


def _combination(streams: _Separated, products: Sequence[Product], known: dict[tuple[int, ...], Tensor]) -> Tensor:
    """Return Σ coefficient · product of streams; a sum of the squares of all first derivatives is one reduction.

    `known` holds products computed so far, by their factors, and is extended.
    """
    coefficient = products[0].coefficient
    total: Any = None
    if len(products) > 1 and products == tuple(Product(coefficient, (i, i)) for i in range(len(streams.first))):
        # Not square(), which would save another tensor for the backward pass.
        total = (streams.first * streams.first).sum(0)
        return total if coefficient == 1 else coefficient * total
    for coefficient, factors in products:
        part = _multiplied(streams, factors, known)
        part = part if coefficient == 1 else coefficient * part
        total = part if total is None else total + part
    return total


def _multiplied(streams: _Separated, factors: tuple[int, ...], known: dict[tuple[int, ...], Tensor]) -> Tensor:
    if len(factors) == 1:
        return streams[factors[0]]
    if factors not in known:
        known[factors] = _multiplied(streams, factors[:-1], known) * streams[factors[-1]]
    return known[factors]


def product(multiply: Callable[[Tensor, Tensor], Tensor], a: Jet, b: Jet, stacked: Callable[..., Tensor]) -> Jet:
    """Return the jet of a bilinear function of two jets: the product rule of all orders (Leibniz).

    Args:
        multiply: the function of two tensors.
        a: the first jet.
        b: the second jet.
        stacked: stacked(x, y, side) applies the function to a stack of tensors on side 0 or 1.
    """
    layout = a.layout
    s, t = _Separated(layout, a.streams), _Separated(layout, b.streams)
    both = _Separated(layout, stacked(a.streams, b.value, 0) + stacked(a.value, b.streams, 1))
    parts = [both.first] if layout.unmixed else []
    for total, mixing in zip(both.higher, layout.mixing[layout.unmixed :], strict=True):
        # Products as in the chain rule of φ(u) = u²/2, with one factor from each jet.
        for coefficient, (i, j) in mixing[0]:
            cross = multiply(s[i], t[j])
            cross = 2 * cross if i == j else cross + multiply(s[j], t[i])
            total = total + coefficient * cross
        parts.append(total)
    return Jet(layout, multiply(a.value, b.value), *parts)
