"""A switch that is thrown between two checks is noticed in the next call, of whichever plain type it is."""

from __future__ import annotations

import enum
import types
from typing import Any

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
    held = held.copy() if isinstance(held, dict | list) else held
    if isinstance(held, Settings | types.SimpleNamespace):
        held = type(held)(value=held.value)
    holder, model = MAKERS[maker](held, is_on)
    x = points(16, 2)
    for _ in range(5):
        dudx.evaluate(model, x, D(0), engine)
    throw(holder, on)
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
