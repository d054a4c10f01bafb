"""Networks that mix samples in several layers: exactly isolated, they agree with the per-sample reference."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from helpers import Counted, parameter_gradients, points, rms
from torch import Tensor, nn
from traps import ENGINES, layers

import dudx
from dudx import AD, EFD, FD, SFD, Along, D, Laplacian, PerSampleAD, Residual, Taylor, evaluate, isolate
from dudx.coupling import exact_isolation as exactly
from dudx.errors import ModelError

OPERATORS = [D(), D(0), D(0, 1), Laplacian()]


def batch_norms(count: int) -> nn.Module:
    layers: list[nn.Module] = []
    for i in range(count):
        layers += [nn.Linear(12 if i else 2, 12), nn.BatchNorm1d(12), nn.Tanh()]
    return nn.Sequential(*layers, nn.Linear(12, 1))


class Attentions(nn.Module):
    """Transformer layers in which the batch is the sequence."""

    def __init__(self, count: int):
        super().__init__()
        self.embed, self.head = nn.Linear(2, 8), nn.Linear(8, 1)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(8, 2, 16, dropout=0, batch_first=True, activation=F.gelu) for _ in range(count)
        )

    def forward(self, x: Tensor) -> Tensor:
        h = self.embed(x).unsqueeze(0)
        for layer in self.layers:
            h = layer(h)
        return self.head(h.squeeze(0))


class Branching(nn.Module):
    """Looks at values, which vmap cannot."""

    def __init__(self) -> None:
        super().__init__()
        self.net = batch_norms(2)

    def forward(self, x: Tensor) -> Tensor:
        value = getattr(x, "value", x)
        return self.net(x) if float(value.detach().sum()) > -1e9 else x


STACKS = {
    "2 batch norms": lambda: batch_norms(2),
    "4 batch norms": lambda: batch_norms(4),
    "2 attentions": lambda: Attentions(2),
    "looped": Branching,
}


def made(name: str, size: int = 16, dtype: torch.dtype = torch.float64) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    return STACKS[name]().to(dtype), (torch.rand(size, 2, dtype=torch.float64) * 4 - 2).to(dtype)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-11)])
@pytest.mark.parametrize("engine", [AD(), Taylor()], ids=["AD", "Taylor"])
@pytest.mark.parametrize("name", STACKS)
def test_exact_to_rounding(name, engine, dtype, tolerance):
    model, x = made(name, dtype=dtype)
    operators = [*OPERATORS, Along(x, 2)]
    reference = evaluate(model, x, operators, PerSampleAD(method="loop"))
    for ours, exact in zip(evaluate(isolate(model, x, exact=True), x, operators, engine), reference, strict=True):
        assert (ours - exact).abs().max() < tolerance * (1 + exact.abs().max())


@pytest.mark.parametrize("name", ["2 batch norms", "4 batch norms", "2 attentions"])
def test_what_an_approximation_leaves_out(name):
    """The approximation has an error, so the test above is meaningful; the default has none."""
    model, x = made(name)
    ways = ({"approximate": True}, {"exact": True}, {})
    first_hand, exact, default = (evaluate(isolate(model, x, **way), x, [D(0)], AD())[0].detach() for way in ways)
    assert rms(first_hand - exact) > 1e-4 * rms(exact)
    assert torch.equal(default, exact)


@pytest.mark.parametrize("make", [FD, lambda h: EFD({1: h, 2: h}), lambda h: SFD((h, h))], ids=["FD", "EFD", "SFD"])
@pytest.mark.parametrize("name", ["2 batch norms", "2 attentions"])
def test_differences_converge_at_their_order(name, make):
    model, x = made(name)
    isolated = isolate(model, x, exact=True)
    (exact,) = evaluate(model, x, [Laplacian()], PerSampleAD())
    errors = [(evaluate(isolated, x, [Laplacian()], make(h))[0] - exact).abs().max() for h in (4e-3, 2e-3)]
    assert torch.log2(errors[0] / errors[1]).item() == pytest.approx(2, abs=0.15)


@pytest.mark.parametrize("chunk", [1, 5, 1000])
@pytest.mark.parametrize("engine", [AD(), Taylor(), FD(1e-4)], ids=["AD", "Taylor", "FD"])
@pytest.mark.parametrize("name", STACKS)
def test_gradients_of_parameters_whatever_the_chunk(name, engine, chunk, monkeypatch):
    monkeypatch.setattr(exactly, "batches_per_pass", lambda size: chunk)
    model, x = made(name, size=6)
    residual = Residual(lambda u: u.laplacian() + u * u.x, ("x", "y"))
    ours = parameter_gradients(residual.loss(isolate(model, x, exact=True), x, engine), model)
    true = parameter_gradients(residual.loss(model, x, PerSampleAD(method="loop")), model)
    # Rounding of 1e-16 divided by the square of the step, and the step's square times a fourth derivative.
    tolerance = 1e-4 if isinstance(engine, FD) else 1e-11
    assert (ours - true).abs().max() < tolerance * (1 + true.abs().max())


def remembered(compute) -> int:
    """Bytes kept for the backward pass, apart from those that will be computed again."""
    sizes = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: sizes.append(t.nbytes) or t, lambda t: t):
        compute()
    return sum(sizes)


@pytest.mark.parametrize(("engine", "bounded"), [(FD(1e-2), True), (Taylor(), True), (AD(), False)])
def test_memory_is_bounded_where_only_parameters_want_a_gradient(engine, bounded, monkeypatch):
    monkeypatch.setattr(exactly, "batches_per_pass", lambda size: 8)
    model, x = made("2 batch norms", size=64)
    activations = 64 * 64 * 12 * x.element_size()  # of one layer, in all batches
    isolated = isolate(model, x, exact=True)
    for _ in range(2):
        evaluate(isolated, x, [D(0)], engine)  # the checks in the calls 1, 2, 4, 8, … keep tensors of their own
    assert (remembered(lambda: evaluate(isolated, x, [D(0)], engine)) < activations) == bounded


def test_without_gradients_nothing_is_computed_twice(monkeypatch):
    monkeypatch.setattr(exactly, "batches_per_pass", lambda size: 4)
    model, x = made("2 batch norms")
    counted = Counted(model)
    with torch.no_grad():
        isolate(counted, x, update_statistics=False, exact=True)(x)
    assert counted.rows == [16] * (1 + 4)  # one row to see whether the network can be vectorised, and four chunks


def test_a_function_hides_no_running_statistics():
    model, x = made("2 batch norms")
    evaluate(isolate(lambda x: model(x), x, exact=True), x, [Laplacian()], AD())
    assert model[1].num_batches_tracked == 1


def test_the_model_s_own_error_is_the_one_that_is_shown():
    x = torch.rand(8, 2, dtype=torch.float64)
    with pytest.raises(ModelError, match="shape \\(8,\\) for 8 points"):
        isolate(lambda x: (x - x.mean(0)).sum(1), x, exact=True)(x)


def test_a_constant_network_has_no_derivative():
    x = torch.rand(8, 2, dtype=torch.float64)
    for engine in (AD(), Taylor()):
        (value,) = evaluate(isolate(lambda x: torch.ones(len(x), 1, dtype=x.dtype), x, exact=True), x, [D(0)], engine)
        assert torch.equal(value, torch.zeros(8, 1, dtype=torch.float64))


@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
def test_isolation_is_exact_with_two_batch_norms(engine):
    a, b, c = layers()
    model = nn.Sequential(a, nn.BatchNorm1d(8), nn.Tanh(), b, nn.BatchNorm1d(8), nn.Tanh(), c).double()
    x = points(6, 2)
    (true,) = dudx.evaluate(model, x, [Laplacian()], dudx.PerSampleAD(method="loop"))
    if engine.coupled is not None:
        with pytest.raises(dudx.CoupledModelError, match=r"dudx\.isolate"):
            dudx.evaluate(model, x, Laplacian(), engine)
    (found,) = dudx.evaluate(dudx.isolate(model, x), x, [Laplacian()], engine)
    tolerance = 5e-3 if engine.approximate else 1e-9  # features as narrow as those of 6 samples have large derivatives
    assert float((found - true).detach().abs().max()) < tolerance * float(true.detach().abs().max())
