"""Signatures of the public names: an option with a few words is a `Literal`, so that editors and pyright know them."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Iterator
from typing import Any, Literal, get_args, get_origin

import pytest

import dudx
import dudx.lab
import dudx.optim
from dudx import diagnose
from dudx.coupling import isolated
from dudx.engines.difference import calibration
from dudx.network import ensemble
from dudx.residual import field

#: Parameters that take any text, and what it is.
OPEN = {
    "Calibration.reference": "a word, or how an engine is written",
    "Explanation.method": "a sentence",
    "at": "a boundary by its name or place",
    "axes": "the name of an input, or several",
    "device": "a device of torch",
    "engines": "names",
    "fault": "a sentence",
    "file": "a path",
    "folder": "a path",
    "key": "a derivative as it is written",
    "label": "a text",
    "name": "a name of the user's",
    "names": "names of inputs",
    "network": "the name of a class",
    "note": "a sentence",
    "of": "the name of an output",
    "on": "a boundary by its name or place",
    "out": "a path",
    "path": "a path",
    "problem": "the name of a problem, or package.module:name",
    "profile": "the name of a profile, or a path",
    "remedy": "a sentence",
    "says": "a sentence",
    "skipped": "a sentence",
    "title": "a text",
    "type": "the name of a class",
    "what": "a sentence",
}
RETURNED = [calibration.Calibration, ensemble.Ensemble, field.Field, isolated.Isolated]
SETTINGS = dudx.lab.Settings  # whose words are checked by pydantic, and may be those of users


def public() -> Iterator[tuple[str, Callable[..., Any]]]:
    """All public functions, classes, and the methods of these."""
    named = [(name, getattr(room, name)) for room in (dudx, dudx.optim, diagnose, dudx.lab) for name in room.__all__]
    for name, thing in [*named, *((kind.__name__, kind) for kind in RETURNED)]:
        if inspect.isfunction(thing):
            yield name, thing
        elif isinstance(thing, type) and thing is not SETTINGS and not issubclass(thing, BaseException):
            yield name, thing
            for key in dir(thing):
                method = inspect.getattr_static(thing, key)
                method = getattr(method, "__func__", method)
                if inspect.isfunction(method) and not key.startswith("_") and method.__module__.startswith("dudx"):
                    yield f"{name}.{key}", method


PUBLIC = dict(public())


def words(hint: object) -> tuple[str, ...]:
    """Return the words that an annotation allows, among others."""
    parts = (hint, *get_args(hint)) if get_origin(hint) is not Literal else (hint,)
    return tuple(word for part in parts if get_origin(part) is Literal for word in get_args(part))


def hints_of(thing: Callable[..., Any]) -> dict[str, object]:
    """Return the types of the parameters of a function or of the constructor of a class."""
    constructor = vars(thing).get("__init__") if isinstance(thing, type) else thing
    own = typing.get_type_hints(constructor) if inspect.isfunction(constructor) else {}
    fields = typing.get_type_hints(thing) if isinstance(thing, type) else {}
    return {name: own.get(name, fields.get(name)) for name in inspect.signature(thing).parameters}


@pytest.mark.parametrize("name", PUBLIC)
def test_a_text_is_a_name_a_path_or_a_literal(name: str) -> None:
    for parameter, hint in hints_of(PUBLIC[name]).items():
        parts = get_args(hint) if get_origin(hint) in (typing.Union, types.UnionType) else (hint,)
        if str in parts and bytes not in parts:  # both are among what numpy makes arrays of
            listed = parameter in OPEN or f"{name}.{parameter}" in OPEN
            assert listed, f"{name}({parameter}: {hint}) must be a Literal, or an entry of OPEN"


@pytest.mark.parametrize(
    ("thing", "parameter", "expected"),
    [
        (dudx.AD, "coupled", {"refuse", "ignore"}),
        (dudx.FD, "side", {"central", "forward", "backward"}),
        (dudx.PerSampleAD, "method", {"vectorised", "loop"}),
        (dudx.find_eps, "reference", {"exact", "float64", "differences"}),
        (field.Field.caputo, "method", {"l1", "grunwald"}),
        (dudx.optim.Balance, "by", {"mean", "median"}),
        (dudx.optim.LevenbergMarquardt, "solver", {"auto", "normal", "kernel", "free"}),
        (dudx.lab.MLP, "initialisation", {"xavier", "torch"}),
    ],
)
def test_words_that_are_allowed_are_those_of_the_literal(thing: Any, parameter: str, expected: set[str]) -> None:
    assert set(words(hints_of(thing)[parameter])) == expected


@pytest.mark.parametrize(
    ("call", "allowed"),
    [
        (lambda: dudx.AD(coupled="no"), "coupled must be one of 'refuse', 'ignore'; got 'no'"),
        (lambda: dudx.FD(0.1, side="up"), "side must be one of 'central', 'forward', 'backward'; got 'up'"),
        (lambda: dudx.PerSampleAD(method="fast"), "method must be one of 'vectorised', 'loop'; got 'fast'"),
        (lambda: dudx.optim.Balance(by="max"), "by must be one of 'mean', 'median'; got 'max'"),
        (lambda: dudx.lab.MLP(2, 1, initialisation="he"), "initialisation must be one of 'xavier', 'torch'; got 'he'"),
    ],
)
def test_other_words_are_refused_at_run_time_too(call: Callable[[], Any], allowed: str) -> None:
    with pytest.raises(dudx.errors.InputError) as error:
        call()
    assert allowed in str(error.value)
