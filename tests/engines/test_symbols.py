"""The space of derivatives that an operator needs, and how they mix: checked on polynomials, which know the answer."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dudx.engines.taylor.symbols import closure, derivatives, mixing

OPERATORS = {
    "laplacian": {(0, 0): 1.0, (1, 1): 1.0},
    "biharmonic": {(0, 0, 0, 0): 1.0, (0, 0, 1, 1): 2.0, (1, 1, 1, 1): 1.0},
    "heat": {(2,): 1.0, (0, 0): -1.0, (1, 1): -1.0},
    "burgers": {(1,): 1.0, (0, 0): -0.01 / math.pi},
    "mixed": {(0, 1, 2): 1.0},
    "fourth": {(0, 1, 2, 3): 1.0},
    "uneven": {(0, 0, 0): 0.1, (0, 1): 0.3, (1,): 0.7, (): 2.0, (0, 0, 1, 1, 1): 1.1},
}


def at(symbol: dict, xi: np.ndarray) -> float:
    return sum(c * math.prod(xi[variable] for variable in monomial) for monomial, c in symbol.items())


@pytest.mark.parametrize(
    ("name", "size"), [("laplacian", 3), ("biharmonic", 8), ("heat", 3), ("burgers", 2), ("mixed", 7), ("fourth", 15)]
)
def test_the_closure_is_as_small_as_it_can_be(name: str, size: int) -> None:
    """The rank of all derivatives, taken one after the other; constants not counted."""
    assert len(closure([OPERATORS[name]])) == size
    found, waiting = [], [OPERATORS[name]]
    while waiting:
        symbol = waiting.pop()
        found.append(symbol)
        waiting += derivatives(symbol)
    monomials = sorted({monomial for symbol in found for monomial in symbol if monomial})
    assert np.linalg.matrix_rank([[symbol.get(m, 0.0) for m in monomials] for symbol in found]) == size


@pytest.mark.parametrize("name", OPERATORS)
def test_a_basis_element_is_known_by_its_key(name: str) -> None:
    basis = closure([OPERATORS[name]])
    for key, symbol in basis.items():
        assert [symbol.get(other, 0.0) for other in basis] == [float(other == key) for other in basis]
    rng = np.random.default_rng(0)
    xi = rng.normal(size=4)
    for symbol in (OPERATORS[name], *derivatives(OPERATORS[name])):
        combination = sum(symbol.get(key, 0.0) * at(basis[key], xi) for key in basis) + symbol.get((), 0.0)
        assert combination == pytest.approx(at(symbol, xi), rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("count", [2, 3])
def test_products_of_exponentials(name: str, count: int) -> None:
    """P(∂) of exp(ξ·x) exp(η·x) … at 0 is P(ξ + η + …); of the products in the table each is a sum over all orders."""
    basis = closure([OPERATORS[name]])
    keys = list(basis)
    rng = np.random.default_rng(1)
    parts = rng.normal(size=(count, 4))
    values = np.array([[at(symbol, xi) for symbol in basis.values()] for xi in parts])
    for symbol in basis.values():
        expected = at(symbol, parts.sum(0))
        found = 0.0
        for size in range(1, count + 1):
            for chosen in itertools.combinations(range(count), size):
                if size == 1:
                    found += at(symbol, parts[chosen[0]])
                    continue
                products = mixing(symbol, keys)
                for coefficient, streams in products[size - 2] if size - 2 < len(products) else ():
                    for ordered in itertools.permutations(streams):
                        found += coefficient * math.prod(values[f, s] for f, s in zip(chosen, ordered, strict=True))
        assert found == pytest.approx(expected, rel=1e-10, abs=1e-10)


def test_the_chain_rule_of_one_variable_counts_set_partitions() -> None:
    bell_numbers = [1, 2, 5, 15, 52]
    for order, bell in enumerate(bell_numbers, 1):
        basis = closure([{(0,) * order: 1.0}])
        products = mixing({(0,) * order: 1.0}, list(basis))
        assert 1 + sum(p.coefficient for group in products for p in group) == bell


@given(st.lists(st.tuples(st.floats(0.1, 1), st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=4))
def test_multiples_of_an_operator_need_no_more(terms: list[tuple[float, int, int]]) -> None:
    """Rounding of the coefficients does not let a multiple pass for something new."""
    symbol: Counter = Counter()
    for c, i, j in terms:
        symbol[tuple(sorted((i, j, j)))] += c  # type: ignore[assignment]
    multiple = {monomial: c / 3 for monomial, c in symbol.items()}
    assert len(closure([symbol, multiple])) == len(closure([symbol]))


def test_an_operator_without_derivatives_needs_nothing() -> None:
    assert closure([{(): 3.0}, {}]) == {}
