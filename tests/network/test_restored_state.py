"""Probes leave no trace: plain Python state that a network keeps is as it was."""

from __future__ import annotations

import itertools
import random
from array import array
from collections import deque
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from helpers import every_engine, points
from torch import nn

import dudx
from dudx import D, Laplacian
from dudx.network.restored_state import unchanged_state

ENGINES = every_engine(0.02, 4)


class Meter:
    """An object of a user's own."""

    def __init__(self):
        self.calls, self.log = 0, []


class Slotted:
    __slots__ = ("calls",)

    def __init__(self):
        self.calls = 0


CALLS = 0


class Counting(nn.Module):
    """Counts its calls in every way there is."""

    instances, names = 0, ()

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(2, 8), nn.Linear(8, 1)
        self.calls, self.history, self.by_size, self.sizes = 0, [], {}, set()
        self.recent, self.meter, self.last = deque(maxlen=3), Meter(), None
        self.counter, self.array = torch.zeros(1), np.zeros(2)
        self.long, self.nested = list(range(5000)), {"inner": [[]]}
        self.bytes, self.numbers, self.ids = bytearray(), array("d", [0.0]), itertools.count()
        self.namespace, self.slotted = SimpleNamespace(calls=0), Slotted()
        self.double()

    def count(self):
        global CALLS
        CALLS += 1
        type(self).instances += 1
        type(self).names += ("x",)
        self.bytes.append(1)
        self.numbers.append(1.0)
        next(self.ids)
        self.namespace.calls += 1
        self.slotted.calls += 1

    def forward(self, x):
        self.count()
        self.calls += 1
        self.history.append(len(x))
        self.by_size[len(x)] = self.by_size.get(len(x), 0) + 1
        self.sizes.add(len(x))
        self.recent.append(self.calls)
        self.meter.calls += 1
        self.meter.log.append(len(x))
        self.last = len(x)
        self.counter += 1
        self.array += 1
        self.long.append(len(x))
        self.nested["inner"][0].append(len(x))
        self.new = True
        return self.b(torch.tanh(self.a(x)))

    def state(self):
        meter = self.meter.calls, list(self.meter.log)
        plain = self.calls, list(self.history), dict(self.by_size), set(self.sizes), list(self.recent), self.last
        elsewhere = CALLS, self.instances, self.names, self.namespace.calls, self.slotted.calls
        also = bytes(self.bytes), list(self.numbers), repr(self.ids), elsewhere
        return plain, also, meter, float(self.counter), self.array.tolist(), len(self.long), self.nested["inner"][0][:]


@pytest.mark.parametrize("probe", ["coupled", "explain", "isolate", "calibration"])
def test_nothing_that_a_network_counts_advances_by_a_probe(probe):
    model, x = Counting(), points(20, 2)
    model.new = False
    before = model.state()
    if probe == "calibration":
        dudx.find_eps(model, x, order=1)
    else:
        getattr(dudx, probe)(model, x)
    assert model.state() == before
    assert model.new is False


@pytest.mark.parametrize("name", ["AD", "Taylor", "FD", "PerSampleAD", "EFD"])
def test_the_first_evaluation_counts_as_later_ones_do(name):
    model, x = Counting(), points(20, 2)
    advanced = []
    for _ in range(3):  # the third is none at which a network is probed
        before = model.calls
        dudx.evaluate(model, x, [D(0), Laplacian()], ENGINES[name])
        advanced.append(model.calls - before)
    assert advanced == [advanced[-1]] * 3


def test_variables_of_functions_and_generators_are_put_back():
    count, log, network = 0, [], nn.Linear(2, 1)
    rng, numbers, own = np.random.default_rng(0), random.Random(0), torch.Generator().manual_seed(0)

    def model(x):
        nonlocal count
        count += 1
        log.append(rng.random() + numbers.random() + float(torch.rand(1, generator=own)))
        return network(x)

    before = rng.bit_generator.state, numbers.getstate(), own.get_state()
    with unchanged_state(model):
        model(torch.rand(4, 2))
    assert (count, log) == (0, [])
    assert rng.bit_generator.state == before[0]
    assert numbers.getstate() == before[1]
    assert torch.equal(own.get_state(), before[2])


def test_hooks_see_the_passes_of_a_probe():
    model, seen = nn.Linear(2, 1), []
    model.register_forward_hook(lambda module, given, out: seen.append(len(out)))
    dudx.coupled(model, torch.rand(10, 2))
    assert seen
