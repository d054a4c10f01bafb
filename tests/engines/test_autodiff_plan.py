"""Automatic differentiation takes no gradient twice."""

import itertools
from collections import Counter

import pytest
import torch
from helpers import mlp, points
from operator_cases import vectors

from dudx import AD, Along, D, Laplacian, evaluate
from dudx.engines.autodiff import gradients_needed

U, X, Y = (), (0,), (1,)


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ([U], []),
        ([X], [U]),
        ([X, Y], [U]),
        ([(0, 1), (1, 1)], [U, Y]),
        ([(0, 0), (0, 1)], [U, X]),
        ([(0, 0), (1, 1)], [U, X, Y]),
        ([(0, 0), (0, 1), (1, 1)], [U, X, Y]),
        ([(0, 1)], [U, X]),
        ([(0, 0, 0), (0, 0, 1)], [U, X, (0, 0)]),
        ([(0, 0, 0, 0), (0, 0, 1, 1), (1, 1, 1, 1)], None),
    ],
    ids=str,
)
def test_prefixes_are_shared(wanted, expected):
    chosen = gradients_needed(wanted)
    if expected is not None:
        assert Counter(chosen) == Counter(expected)
    # Whatever is chosen must be reachable: known before it is differentiated, and everything wanted known at the end.
    known = {U}
    for prefix in chosen:
        assert prefix in known
        known |= {tuple(sorted((*prefix, axis))) for axis in (0, 1)}
    assert set(wanted) <= known


SECOND = [tuple(sorted(axes)) for axes in itertools.combinations_with_replacement(range(3), 2)]


@pytest.mark.parametrize(
    "wanted", [c for size in range(1, 7) for c in itertools.combinations(SECOND, size)], ids=lambda w: "".join(str(w))
)
def test_up_to_second_order_the_number_of_gradients_is_the_least_possible(wanted):
    """Compared with every other choice of gradients, of which there are few for three variables."""
    prefixes = [U, (0,), (1,), (2,)]

    def suffices(chosen):
        known = {U}
        for prefix in chosen:
            if prefix not in known:
                return False
            known |= {tuple(sorted((*prefix, axis))) for axis in range(3)}
        return set(wanted) <= known

    every = (c for size in range(len(prefixes) + 1) for c in itertools.combinations(prefixes, size))
    least = next(len(chosen) for chosen in every if suffices(chosen))
    assert len(gradients_needed(wanted)) == least


@pytest.fixture
def gradient_calls(monkeypatch):
    calls = []
    original = torch.autograd.grad

    def counted(*args, **kwargs):
        calls.append(kwargs.get("create_graph"))
        return original(*args, **kwargs)

    monkeypatch.setattr(torch.autograd, "grad", counted)
    return calls


@pytest.mark.parametrize(
    ("operators", "count"),
    [
        ([D()], 0),
        ([D(0), D(1)], 1),
        ([Laplacian()], 3),
        ([D(0, 1), D(1, 1)], 2),
        ([D(), D(0), D(1) - 0.1 * D(0, 0)], 2),
        ([D(0), Laplacian(), D(0, 1)], 3),
    ],
    ids=str,
)
def test_automatic_differentiation_takes_each_gradient_once(operators, count, gradient_calls):
    evaluate(mlp(), points(5, 2), operators, AD())
    assert len(gradient_calls) == count


def test_a_direction_shares_the_gradient_with_the_axes(gradient_calls):
    x = points(5, 2)
    v = vectors(x)
    evaluate(mlp(), x, [D(0), Along(v), Along(v, 2)], AD())
    assert len(gradient_calls) == 2


def test_without_grad_the_last_gradient_builds_no_graph(gradient_calls):
    with torch.no_grad():
        evaluate(mlp(), points(5, 2), [D(0, 0)], AD())
    assert gradient_calls == [True, False]
