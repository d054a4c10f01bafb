"""A switch that is thrown between two checks is noticed in the next call, of whichever plain type it is."""

from __future__ import annotations

import copy
import enum
import types
from collections import OrderedDict, defaultdict, deque
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from helpers import Counted, mlp, points
from torch import nn

import dudx
from dudx import AD, FD, D, Taylor


class Kind(enum.Enum):
    APART, TOGETHER = 1, 2


class Settings:
    def __init__(self, value: Any):
        self.value = value


class Slotted:
    __slots__ = ("value",)

    def __init__(self, value: Any):
        self.value = value


class Pair(NamedTuple):
    first: Any
    second: Any


class Switched(nn.Module):
    """A network whose samples influence each other while a switch is on."""

    def __init__(self, held: Any, is_on: Any):
        super().__init__()
        self.net, self.held, self.is_on = mlp(), held, is_on

    def forward(self, x):
        u = self.net(x)
        return u - u.mean(0) if self.is_on(self.held) else u


class Inner(nn.Module):
    def __init__(self, switched: nn.Module):
        super().__init__()
        self.inside = nn.Sequential(nn.Identity(), switched)

    def forward(self, x):
        return self.inside(x)


class Callable_:  # noqa: N801
    """An object that is no module, around a network."""

    def __init__(self, held: Any, is_on: Any):
        self.net, self.held, self.is_on = mlp(), held, is_on

    __call__ = Switched.forward


def _put(key):
    return lambda holder, value: holder.held.__setitem__(key, value)


def _replace(holder, value):
    holder.held = value


def _attribute(holder, value):
    holder.held.value = value


#: What is held, how to throw the switch, its value when it is on, and whether it is on.
SWITCHES = {
    "string": ("apart", _replace, "together", lambda held: held == "together"),
    "float": (0.0, _replace, 1.0, lambda held: held > 0.5),
    "int": (0, _replace, 1, lambda held: held == 1),
    "bool": (False, _replace, True, lambda held: held),
    "None": (None, _replace, 1, lambda held: held is not None),
    "1 and True": (1, _replace, True, lambda held: held is True),
    "enum": (Kind.APART, _replace, Kind.TOGETHER, lambda held: held is Kind.TOGETHER),
    "bool in a dict": ({"mix": False}, _put("mix"), True, lambda held: held["mix"]),
    "string in a dict": ({"mix": "no"}, _put("mix"), "yes", lambda held: held["mix"] == "yes"),
    "new key of a dict": ({}, _put("mix"), True, lambda held: "mix" in held),
    "float in a list": ([0.0, 0.0], _put(1), 1.0, lambda held: held[1] > 0),
    "tuple": ((0, 0), _replace, (0, 1), lambda held: held[1] > 0),
    "bool of an object": (Settings(False), _attribute, True, lambda held: held.value),
    "NumPy bool": (np.bool_(False), _replace, np.bool_(True), bool),
    "NumPy float": (np.float64(0), _replace, np.float64(1), lambda held: held > 0),
    "array": (np.zeros(3), _replace, np.ones(3), lambda held: held[0] > 0),
    "complex": (0j, _replace, 1j, lambda held: held == 1j),
    "fraction": (Fraction(0), _replace, Fraction(1), lambda held: held > 0),
    "bytes": (b"", _replace, b"yes", lambda held: held == b"yes"),
    "set": ({1}, _replace, {1, 2}, lambda held: 2 in held),
    "named tuple": (Pair(0, 0), _replace, Pair(0, 1), lambda held: held.second),
    "ordered dict": (OrderedDict(mix=0), _put("mix"), 1, lambda held: held["mix"]),
    "default dict": (defaultdict(bool), _put("mix"), True, lambda held: held["mix"]),
    "deque": (deque([0]), _put(0), 1, lambda held: held[0]),
    "dict in a dict": ({"a": {}}, lambda holder, value: holder.held["a"].update(mix=value), 1, lambda held: held["a"]),
    "object in a list": (
        [Settings(0)],
        lambda holder, value: setattr(holder.held[0], "value", value),
        1,
        lambda held: held[0].value,
    ),
    "dict of an object": (
        Settings({}),
        lambda holder, value: holder.held.value.update(mix=value),
        1,
        lambda held: held.value,
    ),
    "slot": (Slotted(0), _attribute, 1, lambda held: held.value),
    "tensor": (torch.zeros(()), _replace, torch.ones(()), bool),
    "tensor written to": (torch.zeros(()), lambda holder, value: holder.held.fill_(value), 1.0, bool),
    "module in a list": (
        [nn.Dropout(0.0)],
        lambda holder, value: holder.held[0].train(value),
        False,
        lambda held: not held[0].training,
    ),
    "string of a namespace": (types.SimpleNamespace(value="no"), _attribute, "yes", lambda held: held.value == "yes"),
}
MAKERS = {
    "module": lambda held, is_on: (model := Switched(held, is_on), model),
    "module inside": lambda held, is_on: (switched := Switched(held, is_on), Inner(switched)),
    "in a function": lambda held, is_on: (switched := Switched(held, is_on), lambda x: switched(x)),
    "method": lambda held, is_on: (switched := Switched(held, is_on), switched.forward),
    "object": lambda held, is_on: (model := Callable_(held, is_on), model),
}


@pytest.mark.parametrize("engine", [AD(), Taylor(), FD(1e-2)], ids=["AD", "Taylor", "FD"])
@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("switch", SWITCHES)
def test_a_network_that_becomes_coupled_is_refused_in_the_next_call(switch, maker, engine):
    held, throw, on, is_on = SWITCHES[switch]
    held = copy.deepcopy(held)
    holder, model = MAKERS[maker](held, is_on)
    x = points(16, 2)
    for _ in range(5):
        dudx.evaluate(model, x, D(0), engine)
    throw(holder, on)
    with pytest.raises(dudx.CoupledModelError):
        dudx.evaluate(model, x, D(0), engine)


MIXES = False


class ByGlobal(nn.Module):
    """A network that reads a global and an attribute of its class, in another method than forward."""

    mixes = False

    def __init__(self) -> None:
        super().__init__()
        self.net = mlp()

    def forward(self, x: Any) -> Any:
        return self.ending(self.net(x))

    def ending(self, u: Any) -> Any:
        return u - u.mean(0) if MIXES or self.mixes else u


def by_global() -> Any:
    net = mlp()
    return lambda x: net(x) - net(x).mean(0) if MIXES else net(x)


def by_variable() -> tuple[Any, Any]:
    net, mixes = mlp(), False

    def throw() -> None:
        nonlocal mixes
        mixes = True

    return lambda x: net(x) - net(x).mean(0) if mixes else net(x), throw


def _throw_global() -> None:
    global MIXES
    MIXES = True


def _of_class() -> tuple[Any, Any]:
    kind = type("Own", (ByGlobal,), {})
    return kind(), lambda: setattr(kind, "mixes", True)


def _forward_of_class() -> tuple[Any, Any]:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = mlp()

        def forward(self, x: Any) -> Any:
            return self.net(x)

    return Own(), lambda: setattr(Own, "forward", lambda self, x: self.net(x) - self.net(x).mean(0))


ELSEWHERE = {
    "global of a module": lambda: (ByGlobal(), _throw_global),
    "global of a function": lambda: (by_global(), _throw_global),
    "variable of a function": by_variable,
    "attribute of the class": _of_class,
    "forward of the class": _forward_of_class,
}


@pytest.mark.parametrize("engine", [AD(), Taylor(), FD(1e-2)], ids=["AD", "Taylor", "FD"])
@pytest.mark.parametrize("place", ELSEWHERE)
def test_a_switch_outside_of_the_network_is_noticed_too(place, engine, monkeypatch):
    monkeypatch.setitem(globals(), "MIXES", False)
    (model, throw), x = ELSEWHERE[place](), points(16, 2)
    for _ in range(5):
        dudx.evaluate(model, x, D(0), engine)
    throw()
    with pytest.raises(dudx.CoupledModelError):
        dudx.evaluate(model, x, D(0), engine)


class Noisy(nn.Module):
    def __init__(self):
        super().__init__()
        self.net, self.share = mlp(), 0.0

    def forward(self, x):
        u = self.net(x)
        return u if self.share == 0 else u + self.share * torch.randn_like(u)


def test_a_network_that_becomes_random_is_noticed():
    """Differences take the same numbers at all rows of a point; unnoticed they would be off by noise / step."""
    model, x = Noisy(), points(16, 2)
    for _ in range(5):
        quiet = dudx.evaluate(model, x, D(0), FD(1e-3))
    model.share = 1.0
    torch.testing.assert_close(dudx.evaluate(model, x, D(0), FD(1e-3)), quiet)


class Counting(nn.Module):
    """A network that counts its calls and follows a schedule."""

    def __init__(self):
        super().__init__()
        self.net, self.calls, self.rate = Counted(mlp()), 0, 1.0
        self.kind = "apart"

    def forward(self, x):
        self.calls, self.rate = self.calls + 1, 0.99 * self.rate
        u = self.net(x)
        return u - u.mean(0) if self.kind == "together" else u


def test_a_counter_is_no_switch_and_hides_none():
    model, x = Counting(), points(16, 2)
    for _ in range(100):
        dudx.evaluate(model, x, D(0), AD())
    probes = sum(rows != 16 for rows in model.net.rows) + len(model.net.rows) - 100
    before = len(model.net.rows)
    for _ in range(20):
        dudx.evaluate(model, x, D(0), AD())
    assert len(model.net.rows) - before <= 20 + 12, probes
    model.kind = "together"
    with pytest.raises(dudx.CoupledModelError):
        dudx.evaluate(model, x, D(0), AD())


def test_a_switch_that_goes_to_and_fro_is_checked_as_rarely_as_any_network():
    model, x = Counting(), points(16, 2)
    for call in range(200):
        model.kind = ("apart", "beside")[call % 2]
        dudx.evaluate(model, x, D(0), AD())
    before = len(model.net.rows)
    for call in range(20):
        model.kind = ("apart", "beside")[call % 2]
        dudx.evaluate(model, x, D(0), AD())
    assert len(model.net.rows) - before <= 20 + 24
