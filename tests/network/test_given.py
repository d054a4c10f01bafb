"""Networks of points and data: with any engine, in slices, isolated, compiled, as columns for many functions."""

import pickle

import pytest
import torch
from helpers import EXACT, OnceDifferentiable, every_engine, mlp, parameter_gradients, points
from torch import nn

import dudx
from dudx import AD, FD, D, Laplacian, Residual, Taylor
from dudx.errors import InputError, ModelError

WIDTH, SENSORS, POINTS = 6, 4, 12


class DeepONet(nn.Module):
    """A row of data for each point."""

    def __init__(self, outputs: int = 1):
        super().__init__()
        self.outputs = outputs
        self.branch, self.trunk = mlp(SENSORS, outputs * WIDTH), mlp(2, WIDTH, seed=1)

    def factors(self, x, a):
        return self.branch(a).unflatten(1, (self.outputs, WIDTH)), self.trunk(x)

    def forward(self, x, a):
        branch, trunk = self.factors(x, a)
        return (branch * trunk.unsqueeze(1)).sum(2)


class OfManyFunctions(DeepONet):
    """A row of data for each function, all of them at all points."""

    def forward(self, x, a):
        return torch.einsum("nmk,bk->nbm", *self.factors(x, a))


class Normalised(DeepONet):
    """Samples influence each other."""

    def forward(self, x, a):
        u = super().forward(x, a)
        return u + 0.3 * torch.tanh(u - u.mean(0))


def burgers(u, f):
    return u.t + u * u.x - 0.1 * u.xx - f


WITH_ROWS = Residual(burgers, ("x", "t"), data=("f",), network_data=("a",))
OF_FUNCTIONS = Residual(burgers, ("x", "t"), data=("f",), functions=("a",))


@pytest.fixture
def batch():
    return points(POINTS, 2), points(POINTS, SENSORS, seed=1), points(POINTS, 1, seed=2)


def one_by_one(network, x, a, f):
    """The obvious way: each point by itself with its own data."""
    plain = Residual(lambda u: u.t + u * u.x - 0.1 * u.xx, ("x", "t"))
    own = [plain(lambda z, i=i: network(z, a[i : i + 1].expand(len(z), -1)), x[i : i + 1], AD()) for i in range(len(x))]
    return torch.cat(own) - f


ENGINES = every_engine(1e-2, 4) | {"STDE": dudx.STDE(samples=2)}


def tolerance_of(name: str) -> float:
    """Rounding for exact engines, else the fourth power of the step."""
    return 1e-12 if name in {*EXACT, "STDE"} else 1e-7


@pytest.mark.parametrize("name", ENGINES)
def test_data_follow_the_points_through_every_engine(name, batch):
    network, (x, a, f) = DeepONet(), batch
    found = WITH_ROWS(network, x, ENGINES[name], a=a, f=f)
    truth = one_by_one(network, x, a, f)
    tolerance = tolerance_of(name)
    torch.testing.assert_close(found, truth, rtol=0, atol=tolerance)
    gradients = [parameter_gradients(r.square().mean(), network) for r in (found, truth)]
    torch.testing.assert_close(*gradients, rtol=0, atol=10 * tolerance)


@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("name", ENGINES)
def test_many_functions_at_the_same_points_are_columns(name, outputs, batch):
    x, a, _ = batch
    a = a[:5]
    shared, single = OfManyFunctions(outputs), DeepONet(outputs)
    one, two = lambda u: u.y + u * u.x - 0.1 * u.xx, lambda u, v: (u.x + v * u.y, v.xx - u.y * v)
    equation = one if outputs == 1 else two
    found = Residual(equation, ("x", "y"), functions=("a",))(shared, x, ENGINES[name], a=a)
    each = Residual(equation, ("x", "y"), network_data=("a",))
    tolerance = tolerance_of(name)
    for j, own in enumerate(a):
        truth = each(single, x, AD(), a=own.expand(len(x), -1))
        for ours, true in zip(*(r if outputs == 2 else (r,) for r in (found, truth)), strict=True):
            assert ours.shape == (POINTS, 5)
            torch.testing.assert_close(ours[:, j : j + 1], true, rtol=0, atol=tolerance)


@pytest.mark.parametrize("operators", [[D(), D(0), D(0, 1)], [Laplacian() - D(1)], [D(1, 1, 1), 3 * D(), 0 * D(0)]])
def test_outputs_together_have_the_derivatives_of_each(operators):
    network, x = mlp(2, 7), points(9, 2)
    v = points(9, 2, seed=4)
    operators = [*operators, dudx.Along(v, 2)]
    ours, theirs = (dudx.evaluate(network, x, operators, AD(together=way)) for way in (True, False))
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-13)
    losses = [torch.stack([r.square().mean() for r in found]).sum() for found in (ours, theirs)]
    torch.testing.assert_close(*(parameter_gradients(loss, network) for loss in losses), rtol=0, atol=1e-12)
    with torch.no_grad():
        assert not dudx.evaluate(network, x, D(0), AD(together=True)).requires_grad


def test_a_gradient_that_cannot_be_differentiated_is_taken_output_by_output():
    weights = points(1, 4)
    model = lambda x: OnceDifferentiable.apply(x) @ weights  # noqa: E731
    x = points(5, 1)
    torch.testing.assert_close(dudx.evaluate(model, x, D(0), AD(together=True)), torch.cos(x) @ weights)


@pytest.mark.parametrize("engine", [AD(), FD(1e-3, 4)], ids=["AD", "FD"])
def test_slices_have_their_own_rows(engine, batch):
    network, (x, a, f) = DeepONet(), batch
    whole = WITH_ROWS.loss(network, x, engine, a=a, f=f)
    expected = parameter_gradients(whole, network)
    found = dudx.backward(lambda x, a, f: WITH_ROWS.loss(network, x, engine, a=a, f=f), (x, a, f), chunk=5)
    torch.testing.assert_close(found, whole.detach())
    torch.testing.assert_close(torch.cat([p.grad.flatten() for p in network.parameters()]), expected)
    with pytest.raises(InputError, match="12 for 5 points"):
        dudx.backward(lambda x: WITH_ROWS.loss(network, x, engine, a=a, f=f[:5]), x, chunk=5)


@pytest.mark.parametrize("engine", [AD(), FD(1e-3, 4), Taylor()], ids=["AD", "FD", "Taylor"])
def test_isolated_networks_keep_their_data(engine, batch):
    network, (x, a, f) = Normalised(), batch
    truth = WITH_ROWS(network, x, dudx.PerSampleAD(), a=a, f=f)
    with pytest.raises(dudx.CoupledModelError):
        WITH_ROWS(network, x, engine, a=a, f=f)
    for exact in (False, True):
        isolated = dudx.isolate(dudx.given(network, a=a), x, exact=exact)
        torch.testing.assert_close(WITH_ROWS(isolated, x, engine, a=a, f=f), truth, rtol=0, atol=1e-8)
        some = torch.tensor([7, 2, 3])
        part = WITH_ROWS(isolated.at(some), x[some], engine, a=a[some], f=f[some])
        torch.testing.assert_close(part, truth[some], rtol=0, atol=1e-8)
    with pytest.raises(InputError, match="other data already"):
        WITH_ROWS(isolated, x, engine, a=a.flip(0), f=f)


def test_a_frozen_network_takes_the_points_it_has_data_of(batch):
    network, (x, a, _) = Normalised(), batch
    seen = dudx.frozen(dudx.given(network, a=a), x)
    torch.testing.assert_close(seen(x), network(x, a))
    with pytest.raises(InputError, match="takes these points alone"):
        seen(x[:5])


@pytest.mark.usefixtures("only_traced")
def test_compiled_it_is_the_same_and_one_graph_serves_all_data(batch):
    network, (x, a, f) = DeepONet(), batch
    compiled = WITH_ROWS.compiled()
    for own in (a, a.flip(0)):
        expected = WITH_ROWS(network, x, Taylor(), a=own, f=f)
        torch.testing.assert_close(compiled(network, x, Taylor(), a=own, f=f), expected)
    assert compiled._compiled is not None
    assert compiled._compiled.graph_count == 1


def test_gradients_of_each_sample(batch):
    network, (x, a, f) = DeepONet(), batch
    values, jacobian = WITH_ROWS.jacobian(network, x, Taylor(), a=a, f=f)
    truth = one_by_one(network, x, a, f)
    torch.testing.assert_close(values, truth.flatten().detach())
    torch.testing.assert_close(jacobian, torch.stack([parameter_gradients(r, network) for r in truth.flatten()]))
    with pytest.raises(InputError, match="network_data= instead"):
        OF_FUNCTIONS.jacobian(OfManyFunctions(), x, Taylor(), a=a, f=f)


def test_steps_are_found_and_engines_recommended_with_data(batch):
    x, a, _ = batch
    network = dudx.given(DeepONet(), a=a)
    engine = FD().calibrated(network, x, [Laplacian()])
    exact = dudx.evaluate(network, x, Laplacian(), AD())
    torch.testing.assert_close(dudx.evaluate(network, x, Laplacian(), engine), exact, rtol=0, atol=1e-5)
    assert all(c.seconds for c in dudx.recommend(network, x, [Laplacian()], repeats=1))
    assert not dudx.coupled(network, x)
    assert dudx.coupled(dudx.given(Normalised(), a=a), x)
    assert "12, 4" in repr(network)


def test_ensembles_and_further_networks_take_data_too(batch):
    x, a, f = batch
    members = [DeepONet() for _ in range(2)]
    for member in members:
        nn.init.normal_(member.trunk[0].weight)
    together = WITH_ROWS(dudx.ensemble(members), x, AD(), a=a, f=f)
    torch.testing.assert_close(together, torch.stack([WITH_ROWS(m, x, AD(), a=a, f=f) for m in members]))
    k, network = mlp(2, 1, seed=3), DeepONet()
    unknown = Residual(lambda u, k: k * u.xx, ("x", "t"), network_data=("a",), networks={"k": k})
    truth = k(x) * dudx.evaluate(dudx.given(network, a=a), x, D(0, 0), AD())
    torch.testing.assert_close(unknown(network, x, AD(), a=a), truth)


def test_copies_and_words(batch):
    x, a, f = batch
    again = pickle.loads(pickle.dumps(OF_FUNCTIONS))
    torch.testing.assert_close(
        again(OfManyFunctions(), x, AD(), a=a, f=f), OF_FUNCTIONS(OfManyFunctions(), x, AD(), a=a, f=f)
    )
    with pytest.raises(ModelError, match=r"must return \(N, B\)"):
        OF_FUNCTIONS(DeepONet(), x, AD(), a=a, f=f)
    with pytest.raises(InputError, match="rows or a multiple"):
        dudx.evaluate(dudx.given(DeepONet(), a=a), x[:5], D(0), AD())
    with pytest.raises(InputError, match="not both"):
        Residual(burgers, ("x", "t"), data=("f",), functions=("a",), network_data=("a",))
    with pytest.raises(InputError, match="one network of them"):
        Residual(lambda u, k: k * u.x, ("x", "t"), functions=("a",), networks={"k": mlp()})
    with pytest.raises(InputError, match="expects the data"):
        WITH_ROWS(DeepONet(), x, AD(), a=a)
    with pytest.raises(InputError, match="same points"):
        dudx.given(DeepONet(), a=a, b=a[:3])
    with pytest.raises(InputError, match="no data"):
        dudx.given(DeepONet())
    with pytest.raises(InputError, match="must be a tensor"):
        dudx.given(DeepONet(), a=1.0)
    with pytest.raises(InputError, match="callable"):
        dudx.given(None, a=a)
    with pytest.raises(InputError, match="together is"):
        AD(together="yes")
    with pytest.raises(InputError, match="each point and function"):
        Residual(lambda u, x: (u * x).sum(1, keepdim=True), ("x", "t"), functions=("a",))(
            OfManyFunctions(), x, AD(), a=a
        )
