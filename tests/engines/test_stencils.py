import itertools
from fractions import Fraction
from math import factorial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dudx.engines.difference.stencils import central, tensor_product

ORDERS = range(1, 7)
ACCURACIES = (2, 4, 6, 8)

KNOWN = {
    (1, 2): {-1: "-1/2", 1: "1/2"},
    (1, 4): {-2: "1/12", -1: "-2/3", 1: "2/3", 2: "-1/12"},
    (1, 6): {-3: "-1/60", -2: "3/20", -1: "-3/4", 1: "3/4", 2: "-3/20", 3: "1/60"},
    (2, 2): {-1: "1", 0: "-2", 1: "1"},
    (2, 4): {-2: "-1/12", -1: "4/3", 0: "-5/2", 1: "4/3", 2: "-1/12"},
    (3, 2): {-2: "-1/2", -1: "1", 1: "-1", 2: "1/2"},
    (4, 2): {-2: "1", -1: "-4", 0: "6", 1: "-4", 2: "1"},
    (4, 4): {-3: "-1/6", -2: "2", -1: "-13/2", 0: "28/3", 1: "-13/2", 2: "2", 3: "-1/6"},
    (6, 2): {-3: "1", -2: "-6", -1: "15", 0: "-20", 1: "15", 2: "-6", 3: "1"},
}


@pytest.mark.parametrize(("order", "accuracy"), KNOWN)
def test_textbook_stencils(order, accuracy):
    expected = {offset: Fraction(weight) for offset, weight in KNOWN[order, accuracy].items()}
    assert central(order, accuracy) == expected


@pytest.mark.parametrize("accuracy", ACCURACIES)
@pytest.mark.parametrize("order", ORDERS)
def test_moment_conditions(order, accuracy):
    stencil = central(order, accuracy)
    for j in range(order + accuracy):
        moment = sum(weight * offset**j for offset, weight in stencil.items())
        assert moment == (factorial(order) if j == order else 0)
    # The accuracy is no better than promised: the next moment is the error term.
    assert sum(weight * offset ** (order + accuracy) for offset, weight in stencil.items()) != 0


@pytest.mark.parametrize("accuracy", ACCURACIES)
@pytest.mark.parametrize("order", ORDERS)
def test_even_orders_are_symmetric_and_odd_ones_antisymmetric(order, accuracy):
    stencil = central(order, accuracy)
    assert stencil == {-offset: (-1) ** order * weight for offset, weight in stencil.items()}
    assert (0 in stencil) == (order % 2 == 0)


@pytest.mark.parametrize("accuracy", ACCURACIES)
def test_the_value_is_one_node(accuracy):
    assert central(0, accuracy) == {0: 1}
    assert tensor_product((0, 0), accuracy) == {(0, 0): 1}


def test_mixed_second_derivative():
    quarter = Fraction(1, 4)
    assert tensor_product((1, 1), 2) == {(-1, -1): quarter, (-1, 1): -quarter, (1, -1): -quarter, (1, 1): quarter}


@given(
    orders=st.lists(st.integers(0, 3), min_size=1, max_size=3).map(tuple),
    powers=st.lists(st.integers(0, 5), min_size=3, max_size=3),
    accuracy=st.sampled_from([2, 4]),
)
def test_mixed_stencils_are_exact_on_the_monomials_they_should_be(orders, powers, accuracy):
    powers = [min(p, o + accuracy - 1) for p, o in zip(powers, orders, strict=False)]
    value = Fraction(0)
    for offset, weight in tensor_product(orders, accuracy).items():
        monomial = Fraction(1)
        for k, p in zip(offset, powers, strict=True):
            monomial *= Fraction(k) ** p
        value += weight * monomial
    matches = all(p == o for p, o in zip(powers, orders, strict=True))
    expected = 1
    for o in orders:
        expected *= factorial(o)
    assert value == (expected if matches else 0)


@pytest.mark.parametrize("orders", list(itertools.product(range(3), repeat=2)))
def test_mixed_stencils_have_no_idle_nodes(orders):
    stencil = tensor_product(orders, 2)
    assert all(stencil.values())
    assert len(stencil) == len(central(orders[0], 2)) * len(central(orders[1], 2))
