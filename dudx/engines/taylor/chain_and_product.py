"""The two laws by which jets pass through functions: the chain rule and the product rule, of all orders."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor, addcmul

from dudx.engines.taylor.jet import Jet
from dudx.engines.taylor.stream_layout import Layout
from dudx.engines.taylor.symbols import Product


class _Separated:
    """The streams taken apart at once: the gradient of that is put together once, that of indexing for each index."""

    def __init__(self, layout: Layout, streams: Tensor):
        self.first, *self.higher = streams.split([layout.unmixed, *[1] * (layout.streams - layout.unmixed)])
        self._each: tuple[Tensor, ...] | None = None

    def __getitem__(self, number: int) -> Tensor:
        """One stream."""
        n = len(self.first)
        if number >= n:
            return self.higher[number - n][0]
        if self._each is None:
            self._each = self.first.unbind(0)
        return self._each[number]


def compose(jet: Jet, derivatives: Sequence[Tensor]) -> Jet:
    """φ(u) from φ(u), φ'(u), φ''(u), …, elementwise: the chain rule of all orders (Faà di Bruno)."""
    layout = jet.layout
    s = _Separated(layout, jet.streams)
    known: dict[tuple[int, ...], Tensor] = {}
    parts = [derivatives[1] * s.first] if layout.unmixed else []
    for stream, mixing in zip(s.higher, layout.mixing[layout.unmixed :], strict=True):
        total = derivatives[1] * stream
        for derivative, products in zip(derivatives[2:], mixing, strict=False):
            if len(products) == 1:  # its coefficient goes into the product that is taken anyway
                ((coefficient, factors),) = products
                total = addcmul(total, derivative, _multiplied(s, factors, known), value=coefficient)
            elif products:
                total = addcmul(total, derivative, _combination(s, products, known))
        parts.append(total)
    return Jet(layout, derivatives[0], *parts)


def _combination(streams: _Separated, products: Sequence[Product], known: dict[tuple[int, ...], Tensor]) -> Tensor:
    """Σ coefficient · product of streams; if it is the sum of all first derivatives' squares, that is one reduction.

    Products that have been computed are known by their factors, and what is computed here is added.
    """
    coefficient = products[0].coefficient
    total: Any = None
    if len(products) > 1 and products == tuple(Product(coefficient, (i, i)) for i in range(len(streams.first))):
        # Not square(): twice the first derivatives would be kept for its gradient, beside themselves.
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
    """A bilinear function of two jets: the product rule of all orders (Leibniz).

    `multiply` takes two tensors; `stacked(a, b)` does the same for a stack of tensors on either side (or both).
    """
    layout = a.layout
    s, t = _Separated(layout, a.streams), _Separated(layout, b.streams)
    both = _Separated(layout, stacked(a.streams, b.value, 0) + stacked(a.value, b.streams, 1))
    parts = [both.first] if layout.unmixed else []
    for total, mixing in zip(both.higher, layout.mixing[layout.unmixed :], strict=True):
        # The chain rule's products of two streams, for φ(u) = u²/2, with a factor from either side.
        for coefficient, (i, j) in mixing[0]:
            cross = multiply(s[i], t[j])
            cross = 2 * cross if i == j else cross + multiply(s[j], t[i])
            total = total + coefficient * cross
        parts.append(total)
    return Jet(layout, multiply(a.value, b.value), *parts)
