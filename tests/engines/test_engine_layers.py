"""Networks of many kinds of layers: engines against each other, normalisation against its definition."""

import copy

import pytest
import torch
from helpers import EXACT, PER_SAMPLE, every_engine, parameter_gradients, points
from torch import nn

from dudx import AD, FD, D, Laplacian, PerSampleAD, evaluate
from dudx.errors import UnsupportedError


class Layer(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


class Attention(nn.Module):
    """Attention, or a whole transformer layer, over two tokens made of the features of each sample."""

    def __init__(self, whole=False, need_weights=False):
        super().__init__()
        self.need_weights = need_weights
        if whole:
            self.layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, activation="gelu", batch_first=True)
        else:
            self.layer = nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, x):
        t = x.unflatten(1, (2, 4))
        if isinstance(self.layer, nn.TransformerEncoderLayer):
            return self.layer(t).flatten(1)
        return self.layer(t, t, t, need_weights=self.need_weights)[0].flatten(1)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.GRU(4, 8, batch_first=True)

    def forward(self, x):
        return self.layer(x.unflatten(1, (2, 4)))[0][:, -1]


LAYERS = {
    "tanh": nn.Tanh,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "softplus": nn.Softplus,
    "mish": nn.Mish,
    "sine": lambda: Layer(torch.sin),
    "softmax": lambda: nn.Softmax(dim=1),
    "gated": lambda: nn.Sequential(nn.Linear(8, 16), nn.GLU()),
    "convolution": lambda: nn.Sequential(nn.Unflatten(1, (2, 4)), nn.Conv1d(2, 2, 3, padding=1), nn.Flatten()),
    "unit length": lambda: Layer(lambda x: nn.functional.normalize(x, dim=1)),
    "layer norm": lambda: nn.LayerNorm(8),
    "group norm": lambda: nn.GroupNorm(2, 8),
    "rms norm": lambda: nn.RMSNorm(8),
    "instance norm": lambda: nn.Sequential(nn.Unflatten(1, (2, 4)), nn.InstanceNorm1d(2, affine=True), nn.Flatten()),
    "batch norm, evaluating": lambda: nn.BatchNorm1d(8).eval(),
    "attention": Attention,
    "attention with weights": lambda: Attention(need_weights=True),
    "transformer": lambda: Attention(whole=True),
    "recurrent": Recurrent,
}


def network(layer):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 8), layer(), nn.Tanh(), nn.Linear(8, 1)).double()


#: Layers that an engine must refuse with an error.
UNSUPPORTED = {"PerSampleAD": {"recurrent"}}


@pytest.mark.parametrize(("name", "layer"), [(name, layer) for name, layers in UNSUPPORTED.items() for layer in layers])
def test_what_an_engine_cannot_compute_it_refuses_and_names_one_that_can(name, layer):
    with pytest.raises(UnsupportedError, match=r"use dudx\.\w+\("):
        evaluate(network(LAYERS[layer]), points(6, 2), D(0), EXACT[name])


@pytest.mark.parametrize(
    ("name", "layer"),
    [(name, layer) for layer in LAYERS for name in EXACT if layer not in UNSUPPORTED.get(name, ())],
)
def test_exact_engines_agree_with_differences_whatever_the_layer(name, layer):
    """Also in the gradient of a third derivative, where some fused kernels of torch are silently wrong."""
    model, x, engine = network(LAYERS[layer]), points(6, 2), EXACT[name]
    operators = [D(0), Laplacian(), D(0, 0, 1)]
    values = evaluate(model, x, operators, engine)
    references = evaluate(model, x, operators, FD(2e-2, accuracy=8))
    for value, reference in zip(values, references, strict=True):
        # Normalisations are the least smooth: their third derivatives by differences are good to four digits.
        assert (value - reference).norm() <= 1e-3 * reference.norm()
        expected = parameter_gradients(reference.square().mean(), model)
        assert (parameter_gradients(value.square().mean(), model) - expected).norm() <= 1e-3 * expected.norm()


def plain_layer_norm(x, weight, bias):
    variance = x.var(1, keepdim=True, unbiased=False)
    return (x - x.mean(1, keepdim=True)) / torch.sqrt(variance + 1e-5) * weight + bias


def plain_batch_norm(x, weight, bias):
    return (x - x.mean(0)) / torch.sqrt(x.var(0, unbiased=False) + 1e-5) * weight + bias


def plain_instance_norm(x, weight, bias):
    t = x.unflatten(1, (2, 4))
    t = (t - t.mean(2, keepdim=True)) / torch.sqrt(t.var(2, keepdim=True, unbiased=False) + 1e-5)
    return (t * weight[:2, None] + bias[:2, None]).flatten(1)


NORMALISATIONS = {
    "layer norm": (lambda x, w, b: nn.functional.layer_norm(x, (8,), w, b), plain_layer_norm),
    "torch.layer_norm": (lambda x, w, b: torch.layer_norm(x, (8,), weight=w, bias=b), plain_layer_norm),
    "batch norm": (lambda x, w, b: nn.functional.batch_norm(x, None, None, w, b, training=True), plain_batch_norm),
    "torch.batch_norm": (
        lambda x, w, b: torch.batch_norm(x, w, b, None, None, True, 0.1, 1e-5, False),
        plain_batch_norm,
    ),
    "instance norm": (
        lambda x, w, b: nn.functional.instance_norm(x.unflatten(1, (2, 4)), weight=w[:2], bias=b[:2]).flatten(1),
        plain_instance_norm,
    ),
    "torch.instance_norm": (
        lambda x, w, b: torch.instance_norm(
            x.unflatten(1, (2, 4)), w[:2], b[:2], None, None, True, 0.1, 1e-5, False
        ).flatten(1),
        plain_instance_norm,
    ),
}


class Normalised(nn.Module):
    def __init__(self, normalise):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = nn.Linear(2, 8), nn.Linear(8, 1)
        self.weight, self.bias = nn.Parameter(torch.rand(8)), nn.Parameter(torch.rand(8))
        self.normalise = normalise
        self.double()

    def forward(self, x):
        return self.last(torch.tanh(self.normalise(self.first(x), self.weight, self.bias)))


@pytest.mark.parametrize("engine", [AD(coupled="ignore"), *PER_SAMPLE.values()], ids=["AD", *PER_SAMPLE])
@pytest.mark.parametrize("name", NORMALISATIONS)
def test_normalisation_is_differentiated_as_its_definition(name, engine):
    fused, defined = (Normalised(function) for function in NORMALISATIONS[name])
    x = points(4, 2)
    operators = [D(), D(0), Laplacian(), D(0, 0, 1)]
    values = zip(evaluate(fused, x, operators, engine), evaluate(defined, x, operators, engine), strict=True)
    for value, expected in values:
        # Division by small deviations magnifies rounding with each order.
        torch.testing.assert_close(value, expected, rtol=1e-7, atol=1e-7)
        torch.testing.assert_close(
            parameter_gradients(value.square().mean(), fused),
            parameter_gradients(expected.square().mean(), defined),
            rtol=1e-6,
            atol=1e-6,
        )


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    "layer",
    [
        lambda: nn.BatchNorm1d(8),
        lambda: nn.BatchNorm1d(8, momentum=None),
        lambda: nn.Sequential(nn.Unflatten(1, (2, 4)), nn.InstanceNorm1d(2, track_running_stats=True), nn.Flatten()),
    ],
    ids=["batch norm", "batch norm, cumulative", "instance norm"],
)
def test_running_statistics_are_updated_as_in_any_forward_pass(layer, dtype):
    model, x = network(layer).to(dtype), points(6, 2, dtype)
    twin = copy.deepcopy(model)
    for _ in range(2):
        value = evaluate(model, x, D(), AD(coupled="ignore"))
        expected = twin(x)
    # Two orders of the same sums; a unit in the last place of bfloat16 is a hundredth.
    tolerance = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 3e-2}[dtype]
    torch.testing.assert_close(value, expected, rtol=tolerance, atol=tolerance)
    assert twin.state_dict().keys() == model.state_dict().keys()
    for name, buffer in twin.named_buffers():
        torch.testing.assert_close(model.get_buffer(name), buffer, rtol=tolerance, atol=tolerance)
        assert name.endswith("num_batches_tracked") or not torch.equal(buffer, torch.zeros_like(buffer))


def test_a_batch_of_one_cannot_be_normalised_by_its_own_statistics():
    with pytest.raises(ValueError, match="Expected more than 1 value per channel"):
        evaluate(network(lambda: nn.BatchNorm1d(8)), points(1, 2), D(0), PerSampleAD(method="loop"))


@pytest.mark.parametrize("name", every_engine(1e-2, 2))
def test_several_evaluations_share_one_backward_pass(name):
    """The probe for coupled samples puts buffers back, which must not disturb the graphs of earlier evaluations."""
    engine = every_engine(1e-2, 2)[name]
    model, x = network(lambda: nn.BatchNorm1d(8).eval()), points(5, 2)
    parts = [evaluate(model, x + shift, Laplacian(), engine).square().mean() for shift in (0, 0.1, 0.2)]
    separate = sum(parameter_gradients(part, model) for part in parts)
    torch.testing.assert_close(parameter_gradients(sum(parts), model), separate, rtol=1e-9, atol=1e-9)
