"""`dudx.coupled` over a zoo of architectures: no false alarm and no miss."""

from __future__ import annotations

import pytest
import torch
from architectures import ZOO, made
from helpers import points

from dudx import AD, CoupledModelError, Laplacian, PerSampleAD, coupled, evaluate, isolate
from dudx.lab.run.networks import BatchNormMLP
from dudx.network.probe_rows import perturbations

BATCHES = {
    "random": lambda: points(40, 2),
    "grid": lambda: torch.cartesian_prod(*[torch.linspace(0, 1, 8, dtype=torch.float64)] * 2)[:40],
    "boundary": lambda: torch.cat([points(20, 2).round(), torch.tensor([[0.0, 1.0]]).expand(20, 2).double()]),
    "one place": lambda: torch.zeros(40, 2, dtype=torch.float64),
}


@pytest.mark.parametrize("name", ZOO)
def test_neither_a_false_alarm_nor_a_miss(name):
    wrong = []
    for dtype in (torch.float32, torch.float64):
        for place, batch in BATCHES.items():
            for mode, expected in zip(("training", "evaluation"), ZOO[name][1], strict=True):
                model = made(name, dtype, mode == "training")
                if coupled(model, batch().to(dtype)) is not expected:
                    wrong.append(f"{mode}, {place}, {dtype}: not {expected}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("name", [name for name in ZOO if "one batch only" not in name])
def test_a_batch_of_two_is_enough(name):
    for mode, expected in zip((True, False), ZOO[name][1], strict=True):
        assert coupled(made(name, torch.float64, mode), points(2, 2)) is expected


def test_a_nan_that_goes_away_when_another_row_moves_is_influence():
    x = points(16, 2).abs()
    x[0] = -0.9
    assert coupled(lambda x: x[:, :1] + x[:, :1].sqrt().mean(), x) is True
    assert coupled(lambda x: x[:, :1] + x[:, :1].sqrt(), x) is False


@pytest.mark.parametrize("count", [2, 3, 40])
def test_an_isolated_network_is_independent(count):
    model, x = made("batch norm", torch.float64, training=True), points(count, 2)
    assert coupled(model, x) is True
    assert coupled(isolate(model, x), x) is False


@pytest.mark.parametrize("count", range(2, 40))
def test_every_row_moves_while_any_other_stays(count):
    rows = points(count, 2)
    seen = torch.zeros(count, count, dtype=torch.bool)
    for moved, block in perturbations(rows):
        assert torch.equal(moved[~block.flatten()], rows[~block.flatten()])
        apart = (moved != rows).any(1)
        seen |= apart.unsqueeze(1) & ~block.flatten().unsqueeze(0)
    assert (seen | torch.eye(count, dtype=torch.bool)).all()


# -- the words of the refusal --------------------------------------------------------------------------------------


def test_who_passes_a_batch_norm_network_reads_the_problem_and_the_remedy():
    with pytest.raises(CoupledModelError) as error:
        evaluate(BatchNormMLP(2).double(), points(24, 2), Laplacian(), AD())
    assert str(error.value) == (
        "The samples of this network's batch influence each other, as they do in batch norm in training mode and in "
        "attention over the batch. Each sample's own derivative is that of dudx.isolate(model, x), or by the slower "
        "engine dudx.PerSampleAD(); training works best with dudx.frozen(model, context), one fixed context in all "
        "terms of the loss; print(dudx.explain(model, x)) says which layer it is."
    )


def test_the_remedy_is_one():
    model, x = BatchNormMLP(2).double(), points(24, 2)
    remedied = evaluate(isolate(model, x), x, Laplacian(), AD())
    torch.testing.assert_close(remedied, evaluate(model, x, Laplacian(), PerSampleAD()))
