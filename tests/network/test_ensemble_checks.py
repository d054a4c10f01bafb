"""Every member of an ensemble is checked as a single network is."""

from __future__ import annotations

import pytest
import torch
from helpers import points
from torch import nn

import dudx
from dudx import D, Laplacian


class Gated(nn.Module):
    """Mixes its batch as far as a gate, a number, is open; leaves the graph if so asked."""

    def __init__(self, gate=0.0, without_graph=False):
        super().__init__()
        self.layer, self.gate = nn.Linear(2, 1), nn.Parameter(torch.tensor(gate))
        self.without_graph = without_graph
        self.double()

    def forward(self, x):
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.without_graph):
            h = torch.tanh(self.layer(x))
        return h - self.gate * h.mean(0)


def normed():
    return nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 1)).double()


CASES = {
    "batch norm": (lambda: [normed() for _ in range(3)], dudx.CoupledModelError),
    "the second mixes": (lambda: [Gated(), Gated(0.5), Gated()], dudx.CoupledModelError),
    "the last mixes": (lambda: [Gated(), Gated(), Gated(0.5)], dudx.CoupledModelError),
    "no graph": (lambda: [Gated(without_graph=True) for _ in range(2)], dudx.errors.UnsupportedError),
}
BURGERS = dudx.Residual(lambda u: u.t + u * u.x - 0.1 * u.xx, ("x", "t"))


@pytest.mark.parametrize("compute", ["evaluate", "compiled", "residual"])
@pytest.mark.parametrize("case", CASES)
def test_an_ensemble_is_refused_as_its_members_are(case, compute):
    networks, error = CASES[case]
    several, x = dudx.ensemble(networks()), points(12, 2)
    if case == "no graph" and compute == "compiled":
        pytest.skip("Taylor needs no graph for derivatives in the points")
    compute = {
        "evaluate": lambda: dudx.evaluate(several, x, D(0), dudx.AD()),
        "compiled": lambda: dudx.evaluate(several, x, Laplacian(), dudx.Taylor(), compile=True),
        "residual": lambda: BURGERS(several, x, dudx.AD()),
    }[compute]
    for _ in range(2):  # what was refused is refused again
        with pytest.raises(error):
            compute()


@pytest.mark.parametrize("engine", [dudx.AD(), dudx.Taylor(), dudx.FD(1e-3)], ids=str)
def test_one_that_is_sound_passes_and_keeps_its_buffers(engine):
    several, x = dudx.ensemble([normed() for _ in range(2)]).eval(), points(12, 2)
    before = {name: value.clone() for name, value in several.state_dict().items()}
    found = dudx.evaluate(several, x, D(0), engine)
    for ours, member in zip(found, several.members(), strict=True):
        torch.testing.assert_close(ours, dudx.evaluate(member, x, D(0), engine))
    assert all(torch.equal(value, before[name]) for name, value in several.state_dict().items())
