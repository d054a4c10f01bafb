"""The Jacobian against row-by-row autograd, for every engine and a table of networks."""

from __future__ import annotations

import math

import pytest
import torch
from helpers import mlp, points
from jacobian_networks import NETWORKS, SLOW, network
from torch import Tensor, nn
from torch.nn import functional as F

import dudx
from dudx.gradients.network_rows import parameters_of
from dudx.optim import jacobian, linearize

ENGINES = {
    "AD": lambda: dudx.AD(),
    "PerSampleAD": lambda: dudx.PerSampleAD(),
    "FD": lambda: dudx.FD(1e-2),
    "EFD": lambda: dudx.EFD({1: 1e-2, 2: 2e-2}),
    "SFD": lambda: dudx.SFD((1e-2, 2e-2), generator=torch.Generator().manual_seed(3)),
    "Taylor": lambda: dudx.Taylor(),
}
BURGERS = dudx.Residual(lambda u: u.t + u * u.x - 0.1 * u.xx, ("x", "t"))


def by_rows(values: Tensor, parameters) -> Tensor:
    """The plain way: a backward pass for each row."""
    rows = []
    for value in values.reshape(-1):
        found = torch.autograd.grad(value, parameters, retain_graph=True, allow_unused=True, materialize_grads=True)
        rows.append(torch.cat([gradient.flatten() for gradient in found]))
    return torch.stack(rows)


def agrees(residual, model, x, engine, parameters=None, tolerance=1e-12, **data):
    """The Jacobian, its products and the residual itself against row-by-row autograd with the same random numbers."""
    leaves = parameters_of(model) if parameters is None else parameters
    r, j = jacobian(residual, model, x, engine(), parameters, **data)
    plain = residual(model, x, engine(), **data)
    values = torch.cat([v.flatten() for v in plain]) if isinstance(plain, tuple) else plain.flatten()
    expected = by_rows(values, leaves)
    assert not r.requires_grad
    assert j.shape == expected.shape
    scale = float(expected.abs().max())
    # Differences divide by the square of the step: rounding is 1e4 times that of the network.
    torch.testing.assert_close(r, values.detach(), rtol=0, atol=tolerance * max(1, float(values.detach().abs().max())))
    torch.testing.assert_close(j, expected, rtol=0, atol=tolerance * scale)
    large = expected.abs().amax(0) > 1e-6 * scale
    assert bool((j.abs().amax(0)[large] > 0).all())
    _, linear = linearize(residual, model, x, engine(), parameters, data=data)
    u, v = torch.randn(len(r), dtype=r.dtype), torch.randn(j.shape[1], dtype=r.dtype)
    torch.testing.assert_close(linear.times(v), expected @ v, rtol=0, atol=100 * tolerance * scale)
    torch.testing.assert_close(linear.transposed(u), u @ expected, rtol=0, atol=100 * tolerance * scale)
    torch.testing.assert_close(linear.squared_row_norms(), expected.square().sum(1), rtol=1e-9, atol=tolerance * scale)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", NETWORKS)
def test_every_network_with_every_engine(name, engine):
    tolerance = 1e-12 if engine in ("AD", "PerSampleAD", "Taylor") else 2e-11
    model = network(name)
    agrees(BURGERS, model, points(5, 2), ENGINES[engine], tolerance=tolerance)
    slow = set().union(*(known.slow for known in _remembered(model)))
    assert bool(slow) == (name in SLOW), [list(model.named_parameters())[number][0] for number in slow]


def _remembered(model):
    return list(BURGERS._row_gradients._findings.get(model, {}).values())


@pytest.mark.parametrize("engine", ENGINES)
def test_several_equations_and_outputs_come_one_after_the_other(engine):
    stokes = dudx.Residual(lambda u, v, p: (u.xx + u.yy - p.x, u.x + v.y + u * v), ("x", "y"))
    agrees(stokes, mlp(outputs=3, width=5), points(4, 2), ENGINES[engine], tolerance=2e-11)


@pytest.mark.parametrize("engine", ENGINES)
def test_unknown_constants_in_any_use(engine):
    model = mlp(width=5)
    nu, speed = nn.Parameter(torch.tensor(-0.7).double()), nn.Parameter(torch.tensor([0.4]).double())

    def equation(u):
        return u.t + speed * u * u.x - nu.exp() * u.xx + torch.sin(speed * u)

    residual = dudx.Residual(equation, ("x", "t"))
    leaves = [nu, *model.parameters(), speed]
    agrees(residual, model, points(6, 2), ENGINES[engine], leaves, tolerance=2e-11)


@pytest.mark.parametrize("engine", ENGINES)
def test_data_and_directions_at_each_point(engine):
    x = points(6, 2)
    n = F.normalize(torch.randn(6, 2, dtype=torch.float64))
    residual = dudx.Residual(lambda u, x, n, g: u.along(n) + x * u - g, ("x", "y"), data=("n", "g"))
    agrees(residual, mlp(width=5), x, ENGINES[engine], tolerance=2e-11, n=n, g=torch.randn(6, 1, dtype=torch.float64))


@pytest.mark.parametrize("order", [3, 4])
@pytest.mark.parametrize("engine", ["AD", "Taylor"])
def test_high_orders(order, engine):
    residual = dudx.Residual(lambda u: u.d(*"x" * order) + u * u.t, ("x", "t"))
    agrees(residual, network("scale"), points(4, 2), ENGINES[engine])


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("samples", [1, 2, 3])
def test_few_samples_whose_number_is_that_of_other_things(samples, engine):
    agrees(BURGERS, network("attention"), points(samples, 2), ENGINES[engine], tolerance=2e-11)


def test_as_many_samples_as_units():
    for name in NETWORKS:
        agrees(BURGERS, network(name), points(6, 2), ENGINES["FD"], tolerance=2e-11)


def test_only_some_parameters_and_their_order():
    model = mlp(width=5)
    chosen = [model[2].bias, model[0].weight]
    agrees(BURGERS, model, points(4, 2), ENGINES["Taylor"], chosen)
    model[0].weight.requires_grad_(False)
    _, j = jacobian(BURGERS, model, points(4, 2), dudx.AD())
    assert j.shape == (4, sum(p.numel() for p in model.parameters() if p.requires_grad))


def test_a_parameter_that_is_not_used_has_zeros():
    model = mlp(width=5)
    idle = nn.Parameter(torch.ones(3).double())
    _, j = jacobian(BURGERS, model, points(4, 2), dudx.Taylor(), [*model.parameters(), idle])
    assert not j[:, -3:].any()
    assert j[:, :-3].any(0).sum() > 0.9 * (j.shape[1] - 3)


def test_a_network_that_writes_into_a_copy_of_its_weight():
    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(2, 5), nn.Linear(5, 1)

        def forward(self, x):
            weight = self.first.weight.clone()
            weight[0] = 0.5
            return self.last(torch.tanh(F.linear(x, weight, self.first.bias)))

    model = Masked().double()
    _, j = jacobian(BURGERS, model, points(4, 2), dudx.FD(1e-2))
    expected = by_rows(BURGERS(model, points(4, 2), dudx.FD(1e-2)), list(model.parameters()))
    torch.testing.assert_close(j, expected, rtol=0, atol=1e-10)


def test_later_calls_skip_the_search_and_agree():
    for name in ("mlp", "unruly", "flattened"):
        model, x = network(name), points(5, 2)
        first = jacobian(BURGERS, model, x, dudx.Taylor())
        assert all(torch.equal(a, b) for a, b in zip(first, jacobian(BURGERS, model, x, dudx.Taylor()), strict=True))
        agrees(BURGERS, model, points(7, 2, seed=1), ENGINES["Taylor"])


def test_a_compiled_residual_is_computed_without_its_graph():
    model, x = mlp(width=5), points(4, 2)
    _, j = jacobian(BURGERS.compiled(), model, x, dudx.Taylor())
    assert torch.equal(j, jacobian(BURGERS, model, x, dudx.Taylor())[1])


def test_single_precision_into_a_double_one():
    model, x = mlp(width=5).float(), points(6, 2).float()
    out = torch.full((6, sum(p.numel() for p in model.parameters())), math.nan, dtype=torch.float64)
    _, j = jacobian(BURGERS, model, x, dudx.Taylor(), out=out)
    assert j is out
    expected = by_rows(BURGERS(model.double(), x.double(), dudx.Taylor()), list(model.parameters()))
    torch.testing.assert_close(j, expected, rtol=1e-4, atol=1e-5)


def test_nothing_is_left_behind():
    model, x = network("norms"), points(5, 2)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.get_rng_state()
    jacobian(BURGERS, model, x, dudx.AD())
    assert torch.equal(torch.get_rng_state(), state)
    assert all(p.grad is None for p in model.parameters())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_coupled_networks_are_refused():
    model = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 1)).double()
    for engine in (dudx.AD(coupled="ignore"), dudx.PerSampleAD(), dudx.Taylor()):
        with pytest.raises(dudx.CoupledModelError):
            jacobian(BURGERS, model, points(6, 2), engine)


def test_isolated_networks_whose_rows_depend_on_all_samples():
    model, x = nn.Sequential(nn.Linear(2, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 1)).double(), points(7, 2)
    agrees(BURGERS, dudx.isolate(model, x), x, ENGINES["Taylor"], list(model.parameters()))


@pytest.mark.parametrize("engine", ["AD", "FD"])
def test_a_recurrent_network_takes_the_slow_way(engine):
    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.cells, self.last = nn.GRU(1, 4, batch_first=True), nn.Linear(4, 1)

        def forward(self, x):
            return self.last(self.cells(x.unsqueeze(-1))[0][:, -1])

    agrees(BURGERS, Recurrent().double(), points(5, 2), ENGINES[engine], tolerance=2e-11)


def test_what_cannot_be_differentiated_says_so():
    model, x = mlp(width=4), points(3, 2)
    with pytest.raises(dudx.errors.InputError, match=r"dudx\.Residual"):
        jacobian(lambda u: u, model, x, dudx.AD())
    with pytest.raises(dudx.errors.InputError, match="parameters=\\["):
        jacobian(BURGERS, lambda x: x[:, :1], x, dudx.AD())
    with pytest.raises(dudx.errors.InputError, match="twice"):
        jacobian(BURGERS, model, x, dudx.AD(), [model[0].bias, model[0].bias])
    with pytest.raises(dudx.errors.InputError, match="leaf"):
        jacobian(BURGERS, model, x, dudx.AD(), [model[0].bias * 2])
    with pytest.raises(dudx.errors.InputError, match="no parameters"):
        jacobian(BURGERS, model, x, dudx.AD(), [])
    with pytest.raises(dudx.errors.InputError, match="shape"):
        jacobian(BURGERS, model, x, dudx.AD(), out=torch.empty(2, 2))
