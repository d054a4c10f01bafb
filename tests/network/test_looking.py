"""Networks are looked at again where they have changed, and without a trace in the process."""

from __future__ import annotations

import threading

import pytest
import torch
from helpers import mlp, points
from torch import Tensor, nn

import dudx
from dudx import D, Laplacian
from dudx.engines import first_use
from dudx.engines.request import request_of


def test_nothing_of_the_process_changes_while_networks_are_looked_at():
    """Another thread draws numbers and asks for the fast paths of attention all the while."""
    torch.manual_seed(7)
    expected = [torch.rand(4) for _ in range(2000)]
    torch.manual_seed(7)
    drawn: list[Tensor] = []
    flags: set[tuple[bool, ...]] = set()
    done = threading.Event()

    def look() -> tuple[bool, ...]:
        cuda = torch.backends.cuda
        return (torch.backends.mha.get_fastpath_enabled(), cuda.flash_sdp_enabled(), cuda.mem_efficient_sdp_enabled())

    def other_thread() -> None:
        while not done.is_set():
            flags.add(look())
            if len(drawn) < len(expected):
                drawn.append(torch.rand(4))

    before = look()
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(6, 2, dtype=torch.float64, generator=generator)
    layer = nn.TransformerEncoderLayer(8, 2, 8, dropout=0.1, batch_first=True)
    model = nn.Sequential(nn.Linear(2, 8), nn.Unflatten(1, (1, 8)), layer, nn.Flatten(), nn.Linear(8, 1)).double()
    torch.manual_seed(7)
    thread = threading.Thread(target=other_thread)
    thread.start()
    try:
        for _ in range(2):
            dudx.coupled(model, x)
            dudx.explain(model.eval(), x)
            dudx.evaluate(model.eval(), x, Laplacian(), dudx.AD())
            dudx.evaluate(model.eval(), x, Laplacian(), dudx.PerSampleAD(method="loop"))
    finally:
        done.set()
        thread.join()
    assert flags == {before}
    assert len(drawn) > 10
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(drawn, expected, strict=False))


def test_a_look_puts_back_the_numbers_of_its_engine_and_nobody_elses(monkeypatch):
    model, x, own = mlp(2, 1), points(4, 2), torch.Generator().manual_seed(1)
    seen = []

    def look(*_):
        seen.append(torch.rand(1))  # as another thread would, in the middle of it
        torch.rand(1, generator=own)

    monkeypatch.setattr(first_use, "_looked_at", look)
    state = own.get_state()
    first_use.can_be_planned(dudx.SFD(steps=(1e-3, 1e-2), generator=own), model, x, request_of([D(0)], x))
    assert torch.equal(own.get_state(), state)
    first_use.can_be_planned(dudx.SFD(steps=(1e-3, 1e-2)), mlp(2, 1), x, request_of([D(0)], x))
    assert len(seen) == 2
    assert not torch.equal(torch.rand(1), seen[1])


class Mixing(nn.Module):
    """A network that is no mixture of its batch yet."""

    def __init__(self):
        super().__init__()
        self.a, self.norm, self.b = nn.Linear(2, 8), nn.BatchNorm1d(8).eval(), nn.Linear(8, 1)
        self.centred, self.activation, self.between, self.calls = False, torch.tanh, nn.Identity(), 0
        self.double()

    def forward(self, x):
        self.calls += 1
        h = self.between(self.norm(self.activation(self.a(x))))
        return self.b(h - h.mean(0) if self.centred else h)


class Centred(nn.Module):
    def forward(self, h):
        return h - h.mean(0)


def _without_statistics(net):
    net.norm.running_mean = net.norm.running_var = None


MIXED = {
    "mode": lambda net: net.train(),
    "a layer": lambda net: setattr(net, "between", Centred()),
    "a switch": lambda net: setattr(net, "centred", True),
    "a function": lambda net: setattr(net, "activation", lambda h: torch.tanh(h) - h.mean(0)),
    "a hook": lambda net: net.a.register_forward_hook(lambda module, given, out: out - out.mean(0)),
    "a hook before": lambda net: net.b.register_forward_pre_hook(lambda module, given: (given[0] - given[0].mean(0),)),
    "a forward pass": lambda net: setattr(net.a, "forward", lambda x: (x - x.mean(0)) @ net.a.weight.T),
    "statistics": _without_statistics,
}


@pytest.mark.parametrize("engine", [dudx.Taylor(), dudx.FD(1e-2), dudx.AD()], ids=["Taylor", "FD", "AD"])
@pytest.mark.parametrize("change", MIXED)
def test_a_network_that_begins_to_mix_its_batch_is_looked_at_again(change, engine):
    net, x = Mixing(), points(6, 2)
    for _ in range(2):  # the third meeting is none of those at which it is looked at anyway
        dudx.evaluate(net, x, D(0), engine)
    MIXED[change](net)
    with pytest.raises(dudx.DudxError, match=r"dudx\."):
        dudx.evaluate(net, x, D(0), engine)


def test_a_network_that_counts_its_calls_is_not_another_one_each_time():
    net, x = Mixing(), points(6, 2)
    for _ in range(100):
        dudx.evaluate(net, x, D(0), dudx.FD(1e-2))
    assert net.calls < 200


def test_a_new_axis_is_checked_after_any_number_of_requests():
    def model(x):
        return torch.sin(x[:, :120]).sum(1, keepdim=True) + x[:, 120:].detach().square()

    x = torch.rand(5, 121, dtype=torch.float64)
    for axis in range(120):
        dudx.evaluate(model, x, [D(axis)], dudx.AD())
    with pytest.raises(dudx.DudxError):
        dudx.evaluate(model, x, [D(120)], dudx.AD())
