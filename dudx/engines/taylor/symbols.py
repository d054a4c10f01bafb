"""Operators as polynomials: which derivatives of a function one has to know to push an operator through it.

The symbol of an operator is the polynomial that has a variable ξ for each ∂: that of ∂t - ∂xx is τ - ξ². In the product
rule an operator meets exactly the partial derivatives of its symbol,

    P(∂)(f g) = Σ_α  ∂^α f · P^(α)(∂) g / α!

so a space of symbols that has with P also the derivatives of P is closed under products and under functions of
functions, and no smaller space with P in it is. For the Laplacian that is |ξ|², the ξ_i and 1: d + 2 of them, where the
Hessian has d². For the biharmonic operator in the plane it is 9: 1, ξ, η, ξ², ξη, η², ξ|ξ|², η|ξ|² and |ξ|⁴.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

#: A product of variables, as their sorted numbers: (0, 0, 1) is ξ²η.
Monomial = tuple[int, ...]
Symbol = Mapping[Monomial, float]

#: What is left of a difference of two numbers that agree to this, relatively, is rounding.
_ROUNDING = 1e-12


class Product(NamedTuple):
    """coefficient · a product of streams."""

    coefficient: float
    streams: tuple[int, ...]


def closure(symbols: Iterable[Symbol]) -> dict[Monomial, Symbol]:
    """A basis of the symbols given and all their partial derivatives, without constants, lowest degrees first.

    It is reduced: each element is known by a monomial of its own, its key, in which it has coefficient 1 and all others
    have 0. So the coefficients of any symbol in this basis are its coefficients at the keys.
    """
    basis: dict[Monomial, Symbol] = {}
    waiting = list(symbols)
    while waiting:
        rest = {monomial: c for monomial, c in _reduced(waiting.pop(), basis).items() if monomial}
        if not rest:
            continue  # with a combination of others its derivatives are combinations of theirs
        key = max(rest, key=lambda monomial: abs(rest[monomial]))
        new = {monomial: c / rest[key] for monomial, c in rest.items()}
        for other, element in basis.items():
            if key in element:
                basis[other] = _reduced(element, {key: new})
        basis[key] = new
        waiting.extend(derivatives(new))
    return dict(sorted(basis.items(), key=lambda item: (max(map(len, item[1])), item[0])))


def derivatives(symbol: Symbol) -> list[Symbol]:
    """The derivatives in all variables that occur."""
    found: dict[int, dict[Monomial, float]] = {}
    for monomial, c in symbol.items():
        for variable, power in Counter(monomial).items():
            at = monomial.index(variable)
            found.setdefault(variable, {})[monomial[:at] + monomial[at + 1 :]] = power * c
    return list(found.values())


def _reduced(symbol: Symbol, basis: Mapping[Monomial, Symbol]) -> dict[Monomial, float]:
    """The symbol minus the combination of basis elements that has the same coefficients at their keys."""
    rest = dict(symbol)
    for key, factor in symbol.items():
        for monomial, c in basis.get(key, {}).items():
            before = rest.get(monomial, 0.0)
            after = before - factor * c
            rest[monomial] = after
            if abs(after) <= _ROUNDING * abs(before):
                del rest[monomial]
    return rest


def mixing(symbol: Symbol, keys: Sequence[Monomial]) -> tuple[tuple[Product, ...], ...]:
    """How an operator acts on a function of a function: P(∂) φ(u) = φ'(u) P(∂)u + Σ φ⁽ᵐ⁾(u) · products of m streams.

    Streams are numbered as the keys of a closure to which the symbol belongs. The m-fold product rule of ξ^γ is a sum
    over all ways to split γ; read at the keys only, it is already written in the basis.

    Returns:
        The products of two streams, those of three, and so on.
    """
    total: dict[tuple[int, ...], float] = {}
    # Streams by the first variable of their key: a split takes the variables of a monomial in turn.
    by_variable: dict[int, list[int]] = {}
    for number, key in enumerate(keys):
        by_variable.setdefault(key[0], []).append(number)
    for monomial, c in symbol.items():
        for streams in _splits(monomial, keys, by_variable):
            if len(streams) > 1:
                orders = _factorials(monomial) / math.prod(_factorials(keys[number]) for number in streams)
                product = tuple(sorted(streams))
                total[product] = total.get(product, 0.0) + c * orders / _factorials(product)
    found = [Product(c, streams) for streams, c in sorted(total.items())]
    most = max(map(len, total), default=1)
    return tuple(tuple(p for p in found if len(p.streams) == m) for m in range(2, most + 1))


def _factorials(numbers: tuple[int, ...]) -> int:
    """The product of the factorials of how often each number occurs."""
    return math.prod(math.factorial(count) for count in Counter(numbers).values())


def _splits(
    monomial: Monomial, keys: Sequence[Monomial], by_variable: Mapping[int, Sequence[int]], last: int = 0
) -> Iterator[tuple[int, ...]]:
    """The ways to write a monomial as a product of keys, by number, each once."""
    if not monomial:
        yield ()
        return
    for number in by_variable.get(monomial[0], ()):
        rest = Counter(monomial)
        rest.subtract(keys[number])
        if number < last or min(rest.values()) < 0:
            continue
        left = tuple(sorted(rest.elements()))
        # Of the keys that begin with the same variable the later ones follow.
        following = number if left[:1] == monomial[:1] else 0
        for others in _splits(left, keys, by_variable, following):
            yield (number, *others)
