"""`dudx.diagnose.check` finds what engines do not notice at first use, and nothing in sound networks."""

from __future__ import annotations

import pytest
import torch
from coupled_networks import COUPLED, UNCOUPLED, made
from helpers import mlp, points
from torch import nn
from traps import REFUSED, THOROUGH, TRAPS

import dudx
from dudx import AD, D

X = points(400, 2)


@pytest.mark.parametrize("trap", THOROUGH)
def test_what_engines_do_not_notice_is_found(trap):
    make, line = THOROUGH[trap]
    dudx.evaluate(make(), X, D(0), AD())  # taken for sound
    report = dudx.diagnose.check(make(), X)
    assert not report.ok
    assert [check.name for check in report.faults] == [line]
    assert f"FAULT   {line}: " in repr(report)


#: Right by `backward`, wrong by no engine: refused because torch.autograd.grad fails.
ONLY_REFUSED = {"reentrant checkpoint"}
WRONG = [trap for trap in TRAPS if "AD" in REFUSED.get(trap, ()) and " in a" not in trap and trap not in ONLY_REFUSED]


@pytest.mark.parametrize("trap", WRONG)
def test_what_engines_refuse_is_found_too(trap):
    network, _ = TRAPS[trap]()
    assert not dudx.diagnose.check(network, points(64, 2)).ok


@pytest.mark.parametrize("name", COUPLED)
def test_coupled_networks_are_found(name):
    report = dudx.diagnose.check(made(COUPLED, name), points(64, 2), thorough=False)
    assert "influence of samples on each other" in [check.name for check in report.faults]


@pytest.mark.parametrize("name", [name for name in UNCOUPLED if name not in ("dropout", "spectral norm")])
def test_sound_networks_are_ok(name):
    report = dudx.diagnose.check(made(UNCOUPLED, name), points(64, 2))
    assert report.ok, report


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_plain_network_is_ok_and_untouched(dtype):
    model = nn.Sequential(nn.Linear(2, 8), nn.SiLU(), nn.Linear(8, 3)).to(dtype)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    report = dudx.diagnose.check(model, X.to(dtype))
    assert report.ok, report
    assert len(report.checks) == 6
    assert not any(check.skipped for check in report.checks)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_random_numbers_are_reported():
    report = dudx.diagnose.check(nn.Sequential(mlp(), nn.Dropout(0.5)), X)
    assert "random numbers" in [check.name for check in report.faults]


def test_a_function_is_checked_as_far_as_it_can_be():
    report = dudx.diagnose.check(torch.sin, X)
    assert report.ok
    assert [check.name for check in report.checks if check.skipped] == ["gradients in the parameters"]
