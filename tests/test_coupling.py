import copy
import functools
from dataclasses import replace

import pytest
import torch
from helpers import PER_SAMPLE, Counted, every_engine, mlp, parameter_gradients, points, unchanged
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.utils import parametrizations

from dudx import (
    AD,
    EFD,
    FD,
    SFD,
    Along,
    CoupledModelError,
    D,
    Laplacian,
    PerSampleAD,
    Residual,
    coupled,
    evaluate,
    explain,
    frozen,
    isolate,
)
from dudx.network.modules import modules_of

# -- a zoo of networks -------------------------------------------------------------------------------------------


class Attention(nn.Module):
    """Self-attention: over the batch, where every sample sees the others, or over the features of each sample."""

    def __init__(self, over_batch, need_weights=False):
        super().__init__()
        self.over_batch, self.need_weights = over_batch, need_weights
        self.embed = nn.Linear(2, 8)
        self.attend = nn.MultiheadAttention(4 if not over_batch else 8, 2, batch_first=True)
        self.out = nn.Linear(8, 1)

    def forward(self, x):
        h = torch.tanh(self.embed(x))
        tokens = h[None] if self.over_batch else h.unflatten(1, (2, 4))
        mixed = self.attend(tokens, tokens, tokens, need_weights=self.need_weights)[0]
        return self.out(mixed[0] if self.over_batch else mixed.flatten(1))


class HiddenMean(nn.Module):
    """A mean over the batch deep inside, scaled by a gate."""

    def __init__(self, gate=1.0):
        super().__init__()
        self.first, self.last = nn.Linear(2, 8), nn.Linear(8, 1)
        self.gate = nn.Parameter(torch.tensor(gate, dtype=torch.float64))

    def forward(self, x):
        h = torch.tanh(self.first(x))
        return self.last(torch.tanh(h + self.gate * h.mean(0, keepdim=True)))


class Replacing(nn.Module):
    """Keeps a statistic by putting a new tensor in the place of the old one."""

    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(1))
        self.layer = nn.Linear(2, 1)

    def forward(self, x):
        self.seen = self.seen + 1
        return self.layer(x)


def between(*layers):
    return nn.Sequential(nn.Linear(2, 8), *layers, nn.Tanh(), nn.Linear(8, 1)).double()


class SoftmaxOverBatch(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=0)


class SoftmaxOverFeatures(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=1)


COUPLED = {
    "batch norm": lambda: between(nn.BatchNorm1d(8)),
    "batch norm without running statistics": lambda: between(nn.BatchNorm1d(8, track_running_stats=False)).eval(),
    "attention over the batch": lambda: Attention(over_batch=True).double(),
    "attention over the batch with weights": lambda: Attention(over_batch=True, need_weights=True).double(),
    "attention over the batch, evaluating": lambda: Attention(over_batch=True).double().eval(),
    "hidden mean over the batch": lambda: HiddenMean().double(),
    "softmax over the batch": lambda: between(SoftmaxOverBatch()),
}
UNCOUPLED = {
    "plain": mlp,
    "batch norm, evaluating": lambda: between(nn.BatchNorm1d(8)).eval(),
    "attention over features": lambda: Attention(over_batch=False).double(),
    "attention over features with weights": lambda: Attention(over_batch=False, need_weights=True).double(),
    "attention over features, evaluating": lambda: Attention(over_batch=False).double().eval(),
    "layer norm": lambda: between(nn.LayerNorm(8)),
    "group norm": lambda: between(nn.GroupNorm(2, 8)),
    "dropout": lambda: between(nn.Dropout(0.5)),
    "spectral norm": lambda: nn.Sequential(parametrizations.spectral_norm(nn.Linear(2, 8)), nn.Linear(8, 1)).double(),
    "weight norm": lambda: nn.Sequential(parametrizations.weight_norm(nn.Linear(2, 8)), nn.Linear(8, 1)).double(),
    "softmax over features": lambda: between(SoftmaxOverFeatures()),
    "closed gate": lambda: HiddenMean(gate=0.0).double(),
    "replaced buffer": lambda: Replacing().double(),
}


def made(zoo, name):
    torch.manual_seed(0)
    return zoo[name]()


@pytest.mark.parametrize("count", [1, 2, 3, 5, 40])
@pytest.mark.parametrize("name", COUPLED)
def test_coupled_networks_are_found(name, count):
    model = made(COUPLED, name)
    with unchanged(model):
        assert coupled(model, points(count, 2)) is True


@pytest.mark.parametrize("count", [1, 2, 3, 5, 40])
@pytest.mark.parametrize("name", UNCOUPLED)
def test_uncoupled_networks_are_not_suspected(name, count):
    model = made(UNCOUPLED, name)
    with unchanged(model):
        assert coupled(model, points(count, 2)) is False


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_rounding_is_not_taken_for_influence(dtype):
    x = points(40, 2, dtype)
    assert coupled(mlp(width=64).to(dtype), x) is False
    assert coupled(between(nn.LayerNorm(8)).to(dtype), x) is False
    assert coupled(lambda x: x + x.mean(0), x) is True


def test_one_variable():
    assert coupled(lambda x: torch.sin(x), points(8, 1)) is False
    assert coupled(lambda x: torch.sin(x) + x.mean(), points(8, 1)) is True


def test_influence_that_only_some_rows_have_is_found():
    assert coupled(lambda x: torch.cat([x[:1], x[:-1]]) * x, points(8, 2)) is True  # each on the one before
    assert coupled(lambda x: torch.cat([x[1:], x[-1:]]) * x, points(8, 2)) is True  # each on the one after
    assert coupled(lambda x: x * x.norm(dim=0).amax(), points(8, 2)) is True


def test_a_network_that_returns_nan_has_shown_no_influence():
    model = mlp()
    with torch.no_grad():
        model[0].weight[0, 0] = torch.nan
    assert coupled(model, points(8, 2)) is False
    assert coupled(lambda x: x.log(), points(8, 2)) is False


def test_the_points_and_their_order_do_not_matter():
    x = points(8, 2)
    before = x.clone()
    assert coupled(HiddenMean().double(), torch.zeros(8, 2, dtype=torch.float64)) is True
    assert coupled(HiddenMean().double(), x) is True
    assert torch.equal(x, before)


# -- refusal -----------------------------------------------------------------------------------------------------

REFUSING = {"AD": AD(), "FD": FD(1e-2), "EFD": EFD({1: 1e-2, 2: 1e-2}), "SFD": SFD((1e-2, 2e-2))}


@pytest.mark.parametrize("engine", REFUSING.values(), ids=REFUSING)
@pytest.mark.parametrize("name", COUPLED)
def test_engines_refuse_coupled_networks_and_name_both_remedies(name, engine):
    model = made(COUPLED, name)
    with unchanged(model), pytest.raises(CoupledModelError) as error:
        evaluate(model, points(8, 2), D(0), engine)
    assert "isolate(model, x)" in str(error.value)
    assert "PerSampleAD()" in str(error.value)


@pytest.mark.parametrize("name", UNCOUPLED)
def test_engines_accept_uncoupled_networks(name):
    model, x = made(UNCOUPLED, name), points(8, 2)
    ignoring = [replace(engine, coupled="ignore") for engine in REFUSING.values()]
    for engine, blind in zip(REFUSING.values(), ignoring, strict=True):
        values = []
        for each in (engine, blind):  # which differ in nothing but the look for coupling
            torch.manual_seed(0)  # of dropout, and of random steps
            values.append(evaluate(model, x, D(0), each))
        assert values[0].shape == (8, model(x).shape[1])
        torch.testing.assert_close(*values, rtol=1e-9, atol=1e-9, equal_nan=True)  # spectral norm goes on iterating


@pytest.mark.parametrize("engine", REFUSING.values(), ids=REFUSING)
def test_a_refused_network_stays_refused(engine):
    model, x = HiddenMean().double(), points(8, 2)
    for _ in range(6):
        with pytest.raises(CoupledModelError):
            evaluate(model, x, D(0), engine)


@pytest.mark.parametrize("name", REFUSING)
def test_coupling_can_be_ignored(name):
    engine = replace(REFUSING[name], coupled="ignore")
    value = evaluate(HiddenMean().double(), points(8, 2), D(0), engine)
    assert value.isfinite().all()


def test_what_ignoring_computes_is_the_derivative_of_the_sum():
    model, x = HiddenMean().double(), points(8, 2).requires_grad_()
    value = evaluate(model, x, D(1), AD(coupled="ignore"))
    (total,) = torch.autograd.grad(model(x).sum(), x)
    torch.testing.assert_close(value, total[:, 1:])


def test_residuals_refuse_too():
    with pytest.raises(CoupledModelError):
        Residual(lambda u: u.x, ("x", "t"))(HiddenMean().double(), points(8, 2), AD())


def test_the_names_of_a_networks_parts_do_not_matter():
    class Separable(nn.Sequential):
        def __init__(self):
            super().__init__()
            self.pointwise, self.norm, self.last = nn.Linear(2, 8), nn.BatchNorm1d(8), nn.Linear(8, 1)

    with pytest.raises(CoupledModelError):
        evaluate(Separable().double(), points(8, 2), [D(0)], AD())


def test_functions_are_probed_as_modules_are():
    def model(x):
        return x * x.mean()

    for engine in REFUSING.values():
        with pytest.raises(CoupledModelError):
            evaluate(model, points(8, 2), D(0), engine)


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


# -- the price of the probe --------------------------------------------------------------------------------------


def meetings_probed(model, x, meetings, engine):
    """The meetings at which the model was called more often than the derivative itself needs."""
    probed = []
    for meeting in range(1, meetings + 1):
        model.rows.clear()
        evaluate(model, x, D(0), engine)
        if len(model.rows) > 1:
            probed.append(meeting)
            # A few rows however large the batch, at rest and moved seven times.
            assert model.rows[:-1] == [16] * 8
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

        def __init__(self):
            self.rows = []

        def __call__(self, x):
            self.rows.append(len(x))
            return x[:, :1]

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


# -- each sample's own derivative --------------------------------------------------------------------------------


class PlainBatchNorm(nn.Module):
    """Batch norm by its definition; the fused one of torch has a wrong derivative of third order."""

    def __init__(self, fused):
        super().__init__()
        self.weight, self.bias, self.eps = fused.weight, fused.bias, fused.eps

    def forward(self, x):
        variance = (x - x.mean(0)).square().mean(0)
        return (x - x.mean(0)) / torch.sqrt(variance + self.eps) * self.weight + self.bias


def plain(model):
    """A copy that can be differentiated three times, and whose parameters come in the same order."""
    twin = copy.deepcopy(model)
    for name, module in twin.named_children():
        if isinstance(module, nn.BatchNorm1d):
            setattr(twin, name, PlainBatchNorm(module))
    return twin


def by_hand(model, x, what):
    """The plain loop: the i-th output differentiated with respect to the i-th point, the others held still."""
    rows = []
    for i in range(len(x)):
        own = x[i].clone().requires_grad_()
        batch = x.clone()
        batch[i] = own
        with sdpa_kernel(SDPBackend.MATH):  # the fused kernel has no second derivative
            u = model(batch)[i, 0]
        (gradient,) = torch.autograd.grad(u, own, create_graph=True)
        if what == "laplacian":
            second = [torch.autograd.grad(gradient[k], own, create_graph=True)[0][k] for k in range(2)]
            rows.append(second[0] + second[1])
        else:
            rows.append(gradient[0])
    return torch.stack(rows).unsqueeze(1)


@pytest.mark.parametrize("what", ["gradient", "laplacian"])
@pytest.mark.parametrize("engine", PER_SAMPLE.values(), ids=PER_SAMPLE)
@pytest.mark.parametrize("name", COUPLED)
def test_per_sample_engines_are_right_for_coupled_networks(name, engine, what):
    model, x = made(COUPLED, name), points(6, 2)
    twin = plain(model)
    expected = by_hand(twin, x, what)
    with unchanged(model):
        value = evaluate(model, x, Laplacian() if what == "laplacian" else D(0), engine)
        # Batch norm divides by small deviations, which magnifies rounding.
        torch.testing.assert_close(value, expected, rtol=1e-8, atol=1e-9)
        torch.testing.assert_close(
            parameter_gradients(value.square().mean(), model),
            parameter_gradients(expected.square().mean(), twin),
            rtol=1e-7,
            atol=1e-9,
        )


@pytest.mark.parametrize("name", ["batch norm", "attention over the batch"])
def test_the_per_sample_derivative_is_not_the_derivative_of_the_sum(name):
    model, x = made(COUPLED, name), points(6, 2)
    own = evaluate(model, x, D(0), PerSampleAD())
    ignored = evaluate(model, x, D(0), AD(coupled="ignore"))
    assert (own - ignored).abs().max() > 1e-3 * own.abs().max()


@pytest.mark.parametrize("name", ["batch norm", "attention over the batch"])
def test_vectorised_and_looped_agree_on_everything_else(name):
    model, x = made(COUPLED, name), points(6, 2)
    operators = [D(), D(0, 1), D(1, 1, 1), Along(points(6, 2, seed=3), 2), D() - 0.3 * Laplacian()]
    vectorised = evaluate(model, x, operators, PerSampleAD(chunk=4))
    looped = evaluate(model, x, operators, PerSampleAD(method="loop"))
    torch.testing.assert_close(list(vectorised), list(looped), rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("engine", PER_SAMPLE.values(), ids=PER_SAMPLE)
def test_batch_norm_keeps_tracking_after_a_per_sample_evaluation(engine):
    model, x = made(COUPLED, "batch norm"), points(6, 2)
    evaluate(model, x, D(0), engine)
    assert model[1].track_running_stats
    assert model[1].num_batches_tracked == 0
    model(x)
    assert model[1].num_batches_tracked == 1


@pytest.mark.parametrize("name", every_engine(3e-2, 6))
def test_all_engines_agree_where_samples_are_independent(name):
    model, x = made(UNCOUPLED, "attention over features"), points(6, 2)
    expected = evaluate(model, x, Laplacian(), PerSampleAD(method="loop"))
    value = evaluate(model, x, Laplacian(), every_engine(3e-2, 6)[name])
    # At this step and accuracy differences of so smooth a network are exact to about 1e-8.
    torch.testing.assert_close(value, expected, rtol=1e-6, atol=1e-7)
