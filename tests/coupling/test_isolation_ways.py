"""Method of isolation: all samples in one pass only if that is exact; the repr names the method."""

from __future__ import annotations

import copy
import itertools
import pickle
import re

import pytest
import torch
import torch.nn.functional as F
from helpers import Counted
from isolation_networks import OPERATORS, made, two_batch_norms
from torch import Tensor, nn

import dudx
from dudx import AD, PerSampleAD, evaluate, isolate
from dudx.errors import InputError


def bottleneck(h: Tensor) -> Tensor:
    centred = h - h.mean(0)
    return centred / centred.square().mean(0).sqrt()  # of what has been centred: second-hand


#: Functions of hidden states, and whether all samples may pass together.
WAYS = {
    "one batch norm": (nn.BatchNorm1d(8), True),
    "the same tensor twice": (lambda h: (h - h.mean(0)) / h.std(0), True),
    "beside softmax over features": (lambda h: h.softmax(1) * h.mean(0), True),
    "dropout before it": (lambda h: F.dropout(h, 0.5) - h.mean(0), True),
    "one after the other": (bottleneck, False),
    "two batch norms": (nn.Sequential(nn.BatchNorm1d(8), nn.Tanh(), nn.BatchNorm1d(8)), False),
    "a closed gate between two": (lambda h: F.batch_norm(h + 0 * h.mean(0), None, None, training=True), False),
    "no rule": (lambda h: h - h.amax(0), False),
}


@pytest.mark.parametrize("name", WAYS)
def test_all_samples_pass_together_only_where_that_is_exact(name):
    torch.manual_seed(0)
    (mix, together), embed, head = WAYS[name], nn.Linear(2, 8).double(), nn.Linear(8, 1).double()
    mix = mix.double() if isinstance(mix, nn.Module) else mix
    x = torch.rand(16, 2, dtype=torch.float64) * 4 - 2

    def network(x: Tensor) -> Tensor:
        return head(torch.tanh(mix(torch.sin(embed(x)))))

    isolated = isolate(network, x, update_statistics=False)
    assert isolated.method == ("each alone, in one pass" if together else "each alone, in a batch of its own")
    assert isolated.error == 0
    if "dropout" not in name:  # which is drawn for each evaluation
        ours, exact = evaluate(isolated, x, OPERATORS, AD()), evaluate(network, x, OPERATORS, PerSampleAD())
        for a, b in zip(ours, exact, strict=True):
            assert (a - b).abs().max() < 1e-11 * (1 + b.abs().max())


def test_the_way_is_decided_once_in_a_while():
    """The trainer isolates every batch."""
    model, x = Counted(two_batch_norms()), torch.rand(24, 2, dtype=torch.float64)
    looked = []
    for meeting in range(1, 9):
        before = len(model.rows)
        assert isolate(model, x + meeting).method == "each alone, in a batch of its own"
        looked += [meeting] * (len(model.rows) > before)
    assert looked == [1, 2, 4, 8]


def test_exact_and_approximate_exclude_each_other():
    model, x = made("batch norm")
    with pytest.raises(InputError, match="exact and approximate exclude each other"):
        isolate(model, x, exact=True, approximate=True)


def test_an_approximation_that_leaves_nothing_out_says_so():
    model, x = made("batch norm")
    assert isolate(model, x, approximate=True).error == 0


def test_what_is_isolated_reads_well():
    model, x = two_batch_norms(), torch.rand(24, 2, dtype=torch.float64)
    assert repr(isolate(model, x)) == "<Sequential seen by 24 samples: each alone, in a batch of its own>"
    assert repr(isolate(model[:3], x)) == "<Sequential seen by 24 samples: each alone, in one pass>"
    assert repr(isolate(model[:3], x).at([1])) == "<Sequential seen by 1 of 24 samples: each alone, in one pass>"
    assert repr(dudx.frozen(model, x)) == "<Sequential seen by 24 samples: nothing moves but the query>"
    approximate = isolate(model, x, approximate=True)
    for some in (approximate, approximate.at([1, 2])):
        assert re.search(r"each alone, in one pass, about [\d.]+ % left out>$", repr(some))


@pytest.mark.parametrize("made_again", [copy.deepcopy, lambda isolated: pickle.loads(pickle.dumps(isolated))])
@pytest.mark.parametrize("options", [{}, {"exact": True}, {"approximate": True}], ids=str)
def test_what_is_isolated_can_be_copied_and_kept(options, made_again):
    x = torch.rand(24, 2, dtype=torch.float64)
    isolated = isolate(two_batch_norms(), x, **options).at([3, 5])
    again = made_again(isolated)
    assert torch.equal(again(x[[3, 5]] + 1), isolated(x[[3, 5]] + 1))
    assert (repr(again), again.error) == (repr(isolated), isolated.error)


def test_verification_costs_nothing_in_the_long_run():
    model, x = Counted(made("batch norm")[0]), torch.rand(24, 2, dtype=torch.float64)
    verified = []
    for meeting in range(1, 17):
        before = len(model.rows)
        isolate(model, x)
        verified += [meeting] * (len(model.rows) > before)
    assert verified == [1, 2, 4, 8, 16]
    assert all(rows in (24, 48, 72) for rows in itertools.chain(model.rows))
