"""The look for coupling: when it is made, what it finds inside of functions, and that it leaves no trace."""

import copy
import functools

import pytest
import torch
from coupled_networks import UNCOUPLED, HiddenMean, between, made
from helpers import Counted, mlp, points, unchanged
from torch import nn

from dudx import AD, FD, CoupledModelError, D, coupled, evaluate, explain, frozen, isolate
from dudx.network.modules import modules_of


class Drawing(nn.Module):
    """Batch norm and random numbers."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 1)).double()

    def forward(self, x):
        return self.net(x)


@pytest.mark.parametrize("look", [coupled, explain, isolate, frozen])
def test_probes_seed_only_generators_in_use_and_leave_them_as_they_were(look, monkeypatch):
    model, x, before = Drawing(), points(16, 2), torch.get_rng_state()

    def every_device(seed):
        pytest.fail("generators of devices that are not in use are seeded, and nobody puts these back")

    monkeypatch.setattr(torch, "manual_seed", every_device)
    monkeypatch.setattr(torch.random, "manual_seed", every_device)
    look(model, x)
    assert torch.equal(torch.get_rng_state(), before)


def meetings_probed(model, x, meetings, engine):
    """The meetings at which the model was called more often than the derivative itself needs."""
    probed = []
    for meeting in range(1, meetings + 1):
        model.rows.clear()
        evaluate(model, x, D(0), engine)
        if len(model.rows) > 1:
            probed.append(meeting)
            # A few rows however large the batch, at rest and moved seven times; differences need their larger batch to
            # be the same function, and 16 rows twice.
            assert model.rows[:8] == [16] * 8
            assert model.rows[8:-1] == ([100, 200, 16, 16, 16] if engine.approximate else [])
        assert model.rows[-1] >= len(x)
    return probed


@pytest.mark.parametrize("engine", [AD(), FD(1e-2)], ids=["AD", "FD"])
def test_the_probe_is_made_at_the_first_second_fourth_and_eighth_meeting(engine):
    assert meetings_probed(Counted(mlp()), points(100, 2), 20, engine) == [1, 2, 4, 8, 16]


def test_another_mode_is_another_first_meeting():
    model, x = between(nn.BatchNorm1d(8)).eval(), points(8, 2)
    for _ in range(5):
        evaluate(model, x, D(0), AD())
    model.train()
    with pytest.raises(CoupledModelError):
        evaluate(model, x, D(0), AD())
    evaluate(model.eval(), x, D(0), AD())
    model[1].train()  # a part of it is enough
    with pytest.raises(CoupledModelError):
        evaluate(model, x, D(0), AD())


class Solver:
    """Holds networks, and is none."""

    def __init__(self, net=None):
        self.nets = {"u": [net]}
        self.net, self.inner = net, None


GLOBAL = Solver()


def hidden_in_functions(net):
    """Ways in which a function gets at its network."""
    solver, nets, outer, recursive = Solver(net), [net], Solver(), []
    outer.inner, GLOBAL.nets = solver, [net]
    recursive += [recursive, net]

    def with_a_gap(x):
        return net(x) if x is not None else never_assigned

    if outer.net:
        never_assigned = None

    return {
        "closure": lambda x: net(x),
        "attribute": lambda x: solver.net(x),
        "attribute of an attribute": lambda x: outer.inner.net(x),
        "list": lambda x: nets[0](x),
        "dictionary in an attribute": lambda x: solver.nets["u"][0](x),
        "list that holds itself": lambda x: recursive[1](x),
        "default": lambda x, model=net: model(x),
        "keyword": lambda x, *, model=net: model(x),
        "partial": functools.partial(lambda model, x: model(x), net),
        "method": net.forward,
        "global": lambda x: GLOBAL.nets[0](x),
        "global in a comprehension": lambda x: sum([GLOBAL.nets[i](x) for i in (0,)]),
        "variable without a value": with_a_gap,
    }


@pytest.mark.parametrize("name", hidden_in_functions(nn.Identity()))
def test_another_mode_is_noticed_inside_functions_too(name):
    net, x = between(nn.BatchNorm1d(8)).eval(), points(8, 2)
    model = hidden_in_functions(net)[name]
    assert set(modules_of(model)) == set(net.modules())
    for _ in range(5):
        evaluate(model, x, D(0), AD())
    net.train()
    with pytest.raises(CoupledModelError):
        evaluate(model, x, D(0), AD())


@pytest.mark.parametrize("name", hidden_in_functions(nn.Identity()))
def test_the_buffers_of_a_network_inside_a_function_are_left_alone(name):
    net = between(nn.BatchNorm1d(8))
    with unchanged(net):
        assert coupled(hidden_in_functions(net)[name], points(8, 2))


def test_a_package_whose_name_begins_like_torch_is_looked_into():
    net = between(nn.BatchNorm1d(8))
    elsewhere = type("Solver", (Solver,), {"__module__": "torchfoo.solvers", "__call__": lambda self, x: self.net(x)})
    assert set(modules_of(elsewhere(net))) == set(net.modules())


def test_influence_that_training_switches_on_is_found_soon():
    model, x = HiddenMean(gate=0.0).double(), points(8, 2)
    for _ in range(5):
        evaluate(model, x, D(0), AD())
    with torch.no_grad():
        model.gate += 0.1
    refused = 0
    for _ in range(3):
        try:
            evaluate(model, x, D(0), AD())
        except CoupledModelError:
            refused += 1
    assert refused == 1  # at the eighth meeting, the third after the gate was opened


def test_a_model_that_cannot_be_remembered_is_probed_every_time():
    class Unhashable:
        __hash__ = None
        counted = Counted(lambda x: x[:, :1])

        @property
        def rows(self):
            return self.counted.rows

        def __call__(self, x):
            return self.counted(x)

    assert meetings_probed(Unhashable(), points(100, 2), 5, AD()) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("name", ["batch norm, evaluating", "dropout", "spectral norm", "replaced buffer"])
def test_the_probe_of_an_engine_leaves_no_trace(name):
    """The second meeting probes and the third does not; both must compute with the same random numbers and buffers."""
    model, x = made(UNCOUPLED, name), points(8, 2)
    state = copy.deepcopy(model.state_dict())
    results = []
    for _ in range(3):
        model.load_state_dict(state)
        torch.manual_seed(5)
        results.append(evaluate(model, x, D(0), AD()))
    assert torch.equal(results[0], results[2])
    assert torch.equal(results[1], results[2])
