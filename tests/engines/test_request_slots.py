"""Operators hold no tensors: a request names vectors by slots, so that no cache keeps one alive."""

from __future__ import annotations

import gc
import inspect
import pickle
import weakref

import pytest
import torch
from helpers import EXACT, every_engine, mlp, points

from dudx import Along, D, Residual, Second, evaluate
from dudx.engines import engines
from dudx.engines.interface import Engine
from dudx.engines.request import request_of
from dudx.operators import Directional


def test_a_tensor_has_one_slot_in_a_request():
    x, v, w = points(5, 2), points(5, 2, seed=1), points(5, 2, seed=2)
    request = request_of([Along(w, 2), Along(v) + D(0), Along(w) - 3 * Along(v, 2)], x)
    assert len(request.vectors) == 2
    assert request.vectors[0] is w
    assert request.vectors[1] is v
    assert request.operators[2].terms == {Directional(0, 1): 1.0, Directional(1, 2): -3.0}
    assert all(not operator.vectors for operator in request.operators)
    assert request.with_vectors == [Along(w, 2), Along(v) + D(0), Along(w) - 3 * Along(v, 2)]


def test_requests_of_other_vectors_have_equal_operators():
    x = points(5, 2)
    one, another = (request_of([D(), Along(torch.rand_like(x), 2)], x) for _ in range(2))
    assert one.operators == another.operators
    assert hash(one.operators) == hash(another.operators)


def test_equality_and_hash_do_not_depend_on_the_order_of_slots():
    v, w = points(5, 2, seed=1), points(5, 2, seed=2)
    one, another = Along(v) + 2 * Along(w, 2), 2 * Along(w, 2) + Along(v)
    assert one == another
    assert hash(one) == hash(another)
    assert one != 2 * Along(v, 2) + Along(w)
    assert (one - another).terms == {}


def test_operators_along_vectors_can_be_stored():
    x, v = points(5, 2), points(5, 2, seed=1)
    operator = pickle.loads(pickle.dumps(Along(v, 2) - 0.5 * D(0)))
    for engine in EXACT.values():
        kept, fresh = evaluate(mlp(), x, operator, engine), evaluate(mlp(), x, Along(v, 2) - 0.5 * D(0), engine)
        torch.testing.assert_close(kept, fresh, rtol=0, atol=1e-14)


@pytest.mark.parametrize("name", every_engine(0.1, 2))
def test_nothing_keeps_a_vector_alive(name):
    engine, model, x = every_engine(0.1, 2)[name], mlp(), points(6, 2)
    residual = Residual(lambda u, n: u.along(n) + u.along(n, order=2) - u.x, ("x", "y"), data=("n",))
    v = points(6, 2, seed=1)
    matrix = torch.eye(2, dtype=torch.float64).repeat(6, 1, 1) * v[:, :1, None].abs()
    operators = [Along(v), Along(v, 2), Second(matrix)]
    alive = [weakref.ref(v), weakref.ref(matrix), *(weakref.ref(vector) for o in operators for vector in o.vectors)]
    evaluate(model, x, operators, engine)
    residual(model, x, engine, n=v)
    del v, matrix, operators
    gc.collect()
    assert [ref() for ref in alive] == [None] * len(alive)


def test_no_method_with_a_body_is_overridden():
    for kind in engines().values():
        for place, owner in enumerate(kind.__mro__):
            for name, method in vars(owner).items():
                if name.startswith("__") or not (inspect.isfunction(method) or isinstance(method, property)):
                    continue
                bases = (base for base in kind.__mro__[place + 1 :] if issubclass(base, Engine) and name in vars(base))
                for base in bases:
                    overridden = vars(base)[name]
                    assert getattr(overridden, "__isabstractmethod__", False), f"{owner.__name__}.{name}"
