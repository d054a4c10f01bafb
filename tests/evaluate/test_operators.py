import copy
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dudx import Along, D, Laplacian
from dudx.errors import InputError
from dudx.operators import Operator, Partial

# Whole numbers, so that sums of coefficients are exact in any order.
coefficients = st.integers(-5, 5)
axes = st.lists(st.integers(0, 3), max_size=4)
primitives = st.one_of(axes.map(lambda a: D(*a)), st.just(Laplacian()))


@st.composite
def operators(draw):
    total = Operator({})
    for primitive in draw(st.lists(primitives, max_size=4)):
        total = total + draw(coefficients) * primitive
    return total


@given(operators(), operators(), operators())
def test_addition_is_a_commutative_group(a, b, c):
    assert a + b == b + a
    assert (a + b) + c == a + (b + c)
    assert a + Operator({}) == a
    assert a - a == Operator({})
    assert a - b == a + (-b)


@given(operators(), operators(), coefficients, coefficients)
def test_multiples_are_linear(a, b, s, t):
    assert s * (a + b) == s * a + s * b
    assert (s + t) * a == s * a + t * a
    assert s * (t * a) == (s * t) * a
    assert s * a == a * s
    assert a / 4 == 0.25 * a


@given(operators(), operators(), operators(), coefficients)
def test_composition_is_bilinear_associative_and_commutative(a, b, c, s):
    assert a @ (b + c) == a @ b + a @ c
    assert (a + b) @ c == a @ c + b @ c
    assert (s * a) @ b == s * (a @ b) == a @ (s * b)
    assert (a @ b) @ c == a @ (b @ c)
    assert a @ b == b @ a
    assert a @ D() == a


@given(operators(), operators(), st.integers(1, 4))
def test_expansion_respects_the_algebra(a, b, dimensions):
    assert (a + b).expanded(dimensions) == a.expanded(dimensions) + b.expanded(dimensions)
    assert (a @ b).expanded(dimensions) == a.expanded(dimensions) @ b.expanded(dimensions)
    assert all(term.laplacians == 0 for term in a.expanded(dimensions).terms)


@given(st.lists(st.tuples(primitives, coefficients), max_size=5), st.randoms())
def test_equality_and_hash_do_not_depend_on_the_order_of_terms(parts, random):
    shuffled = parts.copy()
    random.shuffle(shuffled)
    a = sum((c * p for p, c in parts), Operator({}))
    b = sum((c * p for p, c in shuffled), Operator({}))
    assert a == b
    assert hash(a) == hash(b)


@given(axes, st.randoms())
def test_the_order_of_differentiation_does_not_matter(chosen, random):
    shuffled = chosen.copy()
    random.shuffle(shuffled)
    assert D(*chosen) == D(*shuffled)


@given(operators())
def test_repr_is_the_expression_that_makes_the_operator(a):
    assert eval(repr(a), {"D": D, "Laplacian": Laplacian}) == a


def test_different_operators_are_unequal():
    assert D(0) != D(1)
    assert D(0) != 2 * D(0)
    assert D() != D(0)
    assert Laplacian() != Laplacian([0, 1])
    assert D(0) != "D(0)"


@pytest.mark.parametrize(
    "number", [np.float64(0.5), np.float32(0.5), np.float16(0.5), 0.5], ids=["float64", "float32", "float16", "float"]
)
def test_numpy_scalars_multiply_from_either_side(number):
    assert number * D(0, 0) == D(0, 0) * number == 0.5 * D(0, 0)
    assert isinstance(number * D(0, 0), Operator)
    assert D(0) / number == 2 * D(0)
    assert np.int64(3) * D(0) == 3 * D(0)


def test_an_array_does_not_become_an_array_of_operators():
    with pytest.raises(TypeError):
        np.array([1.0, 2.0]) * D(0)


def test_an_operator_cannot_be_changed():
    operator = D(0)
    with pytest.raises(AttributeError):
        operator.terms = {}
    with pytest.raises(AttributeError):
        operator.name = "gradient"
    with pytest.raises(TypeError):
        operator.terms[Partial((1,))] = 2.0
    assert operator == D(0)


def test_an_operator_does_not_follow_the_mapping_it_was_made_from():
    terms = {Partial((0,)): 1.0}
    operator = Operator(terms)
    terms[Partial((1,))] = 1.0
    assert operator == D(0)


def test_operators_can_be_copied_and_stored():
    operator = D(0, 1) - 0.25 * Laplacian()
    assert copy.deepcopy(operator) == operator
    assert pickle.loads(pickle.dumps(operator)) == operator


def test_terms_with_coefficient_zero_vanish():
    assert (D(0) + D(1) - D(0)).terms.keys() == D(1).terms.keys()
    assert (0 * D(0)).terms == {}


@pytest.mark.parametrize(
    ("operator", "text"),
    [
        (D(), "D()"),
        (D(1, 0, 0), "D(0, 0, 1)"),
        (D(1) - 0.1 * D(0, 0), "D(1) + -0.1 * D(0, 0)"),
        (Laplacian() @ Laplacian(), "Laplacian() @ Laplacian()"),
        (Laplacian() @ D(2), "Laplacian() @ D(2)"),
        (D(0) - D(0), "0 * D()"),
        (3 * Along(torch.ones(2, 2), order=2), "3 * Along(v, order=2)"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_repr(operator, text):
    assert repr(operator) == text


@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_the_open_laplacian_is_expanded_to_all_axes(dimensions):
    assert Laplacian().expanded(dimensions) == Laplacian(range(dimensions))
    assert Laplacian(range(dimensions)) == sum((D(i, i) for i in range(dimensions)), Operator({}))


def test_the_biharmonic_operator_has_its_cross_terms():
    expected = D(0, 0, 0, 0) + 2 * D(0, 0, 1, 1) + D(1, 1, 1, 1)
    assert (Laplacian() @ Laplacian()).expanded(2) == expected
    assert Laplacian([0, 1]) @ Laplacian([0, 1]) == expected


def test_laplacian_over_some_axes():
    assert Laplacian([0, 2]) == D(0, 0) + D(2, 2)


def test_orders():
    assert (D() + D(0) - Laplacian()).orders == {0, 1, 2}
    assert (Laplacian() @ D(0, 1)).orders == {4}
    assert Along(torch.ones(2, 2), order=3).orders == {3}


def test_directions_are_equal_if_they_share_the_tensor():
    v = torch.ones(4, 2)
    assert Along(v) == Along(v)
    assert Along(v) + Along(v) == 2 * Along(v)
    assert Along(v) != Along(v.clone())
    assert Along(v) != Along(v, order=2)


def test_along_takes_part_in_sums_but_not_in_compositions():
    v = torch.ones(4, 2)
    robin = Along(v) + 2 * D()
    assert robin.orders == {0, 1}
    assert robin.expanded(2) == robin
    for outer, inner in [(D(0), Along(v)), (Along(v), D(0)), (Along(v), Along(v))]:
        with pytest.raises(InputError, match="does not compose"):
            outer @ inner


@pytest.mark.parametrize("other", [1, "D(0)", None, [D(0)]], ids=repr)
def test_operators_add_only_to_operators(other):
    with pytest.raises(TypeError):
        D(0) + other
    with pytest.raises(TypeError):
        D(0) - other
    with pytest.raises(TypeError):
        D(0) @ other
