import copy
import itertools
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers import (
    DIFFERENCE,
    EXACT,
    FUNCTIONS,
    PER_SAMPLE,
    SMOOTH,
    Counted,
    every_engine,
    mlp,
    parameter_gradients,
    points,
    rms,
)
from torch import nn

from dudx import AD, EFD, FD, SFD, Along, D, Laplacian, PerSampleAD, Residual, UnsupportedError, evaluate
from dudx.engines.autodiff import gradients_needed


def cases(dimensions):
    """Each operator, made for the points x and vectors v, with its closed form for a function f."""
    last = dimensions - 1
    table = {
        "value": (lambda v: D(), lambda f, x, v: f.partial(x)),
        "zero": (lambda v: 0 * D(0), lambda f, x, v: 0 * f(x)),
        "laplacian": (lambda v: Laplacian(), lambda f, x, v: f.laplacian(x)),
        "biharmonic": (lambda v: Laplacian() @ Laplacian(), lambda f, x, v: f.biharmonic(x)),
        "combination": (
            lambda v: 2 * D() - 0.5 * D(last) + 3 * D(0, 0),
            lambda f, x, v: 2 * f(x) - 0.5 * f.partial(x, last) + 3 * f.partial(x, 0, 0),
        ),
        "robin": (lambda v: Along(v) + 1.5 * D(), lambda f, x, v: f.along(x, v, 1) + 1.5 * f(x)),
    }
    for order in range(1, 5):
        for axis in {0, last} if order < 3 else {last}:
            name = f"order {order} on axis {axis}"
            table[name] = (
                lambda v, axes=(axis,) * order: D(*axes),
                lambda f, x, v, axes=(axis,) * order: f.partial(x, *axes),
            )
    for order in range(1, 4):
        table[f"along, order {order}"] = (
            lambda v, order=order: Along(v, order),
            lambda f, x, v, order=order: f.along(x, v, order),
        )
    if dimensions > 1:
        table["mixed 01"] = (lambda v: D(0, 1), lambda f, x, v: f.partial(x, 0, 1))
        table["mixed 001"] = (lambda v: D(0, 1, 0), lambda f, x, v: f.partial(x, 0, 0, 1))
        table["mixed 0011"] = (lambda v: D(0, 0, 1, 1), lambda f, x, v: f.partial(x, 0, 0, 1, 1))
    if dimensions > 2:
        table["mixed 012"] = (lambda v: D(2, 0, 1), lambda f, x, v: f.partial(x, 0, 1, 2))
        table["part of a laplacian"] = (
            lambda v: Laplacian([0, 2]),
            lambda f, x, v: f.partial(x, 0, 0) + f.partial(x, 2, 2),
        )
    return table


def grid(functions):
    return [
        pytest.param(f, *case, id=f"{name}: {label}")
        for name, f in functions.items()
        for label, case in cases(f.dimensions).items()
    ]


def vectors(x):
    """Vectors of lengths between 0.1 and 2, so that an engine that takes them for unit vectors is found out."""
    generator = torch.Generator().manual_seed(1)
    v = torch.randn(x.shape, generator=generator, dtype=x.dtype)
    return v / v.norm(dim=1, keepdim=True) * torch.linspace(0.1, 2, len(x), dtype=x.dtype).unsqueeze(1)


# -- exact engines -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", EXACT.values(), ids=EXACT)
@pytest.mark.parametrize(("f", "operator", "truth"), grid(FUNCTIONS))
def test_exact_engines_agree_with_the_closed_form(f, operator, truth, engine):
    x = points(4, f.dimensions)
    v = vectors(x)
    (value,) = evaluate(f, x, operator(v), engine)
    # Derivatives up to order four are of order ten, and rounding is 1e-15 of that; 1e-9 leaves room.
    torch.testing.assert_close(value, truth(f, x, v), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("engine", EXACT.values(), ids=EXACT)
def test_operators_asked_for_together_are_those_asked_for_alone(engine):
    f, x = SMOOTH["3d-vector"], points(5, 3)
    v, w = vectors(x), vectors(x).flip(0)
    together = [D(0, 1), D(), Along(v), D(2, 2, 0), Along(w, 2), Along(v, 2), Laplacian(), D(0), D(0, 1)]
    alone = [evaluate(f, x, operator, engine)[0] for operator in together]
    # The same sums in another order.
    torch.testing.assert_close(list(evaluate(f, x, together, engine)), alone, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("chunk", [1, 3, 100])
def test_per_sample_results_do_not_depend_on_the_chunk(chunk):
    f, x = SMOOTH["2d"], points(7, 2)
    (whole,) = evaluate(f, x, Laplacian(), PerSampleAD())
    (pieces,) = evaluate(f, x, Laplacian(), PerSampleAD(chunk=chunk))
    torch.testing.assert_close(pieces, whole, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", every_engine(1e-2, 2))
def test_a_constant_has_no_derivative(name):
    engine = every_engine(1e-2, 2)[name]
    x = points(4, 2)
    results = evaluate(lambda x: torch.full((len(x), 2), 3.0, dtype=x.dtype), x, [D(), D(0), Laplacian()], engine)
    # The weights of a stencil sum to zero up to their own rounding, divided here by the square of the step.
    torch.testing.assert_close(results[0], torch.full((4, 2), 3.0, dtype=x.dtype))
    for derivative in results[1:]:
        torch.testing.assert_close(derivative, torch.zeros(4, 2, dtype=x.dtype), rtol=0, atol=1e-9)


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("name", every_engine(1e-2, 2))
def test_the_derivative_along_a_zero_vector_is_zero(name, order):
    engine = every_engine(1e-2, 2)[name]
    f, x = SMOOTH["2d"], points(4, 2)
    v = vectors(x)
    v[1] = 0
    (value,) = evaluate(f, x, Along(v, order), engine)
    assert value[1].item() == 0
    assert (value[[0, 2, 3]] != 0).all()


# -- layers ------------------------------------------------------------------------------------------------------


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


#: What an engine cannot compute, and must say so.
UNSUPPORTED = {"PerSampleAD": {"recurrent"}, "Taylor": {"recurrent"}}


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
        (value,) = evaluate(model, x, D(), AD(coupled="ignore"))
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


# -- finite differences ------------------------------------------------------------------------------------------


def slope(steps, errors):
    return float(np.polyfit(np.log(steps), np.log(errors), 1)[0])


# Between these steps the leading term is the error: below them accuracy 6 meets rounding at order four, and above
# them the next term is felt, the sooner the lower the accuracy.
RANGES = {2: (0.02, 0.08), 4: (0.06, 0.16), 6: (0.12, 0.24)}
# The next term bends the curve by about (h a)^2, and at the larger steps of the wide stencils by more.
SLOPE_TOLERANCE = {2: 0.15, 4: 0.3, 6: 0.3}
EXACT_FOR_DIFFERENCES = {"value", "zero"}


@pytest.mark.parametrize("name", DIFFERENCE)
@pytest.mark.parametrize("accuracy", RANGES)
@pytest.mark.parametrize(
    ("f", "operator", "truth"),
    [
        case
        for case in grid({name: SMOOTH[name] for name in ("1d", "2d-vector", "3d-vector")})
        if case.id.split(": ")[1] not in EXACT_FOR_DIFFERENCES
    ],
)
def test_differences_converge_at_their_order(f, operator, truth, accuracy, name):
    x = points(40, f.dimensions)
    v = vectors(x)
    steps = np.geomspace(*RANGES[accuracy], 4)
    errors = [rms(evaluate(f, x, operator(v), DIFFERENCE[name](h, accuracy))[0] - truth(f, x, v)) for h in steps]
    assert slope(steps, errors) == pytest.approx(accuracy, abs=SLOPE_TOLERANCE[accuracy])


@pytest.mark.parametrize("name", DIFFERENCE)
@pytest.mark.parametrize(
    ("operator", "truth", "steps", "expected"),
    [
        (D(1), lambda f, x: f.partial(x, 1), np.geomspace(1e-10, 1e-7, 8), -1),
        (D(1, 1), lambda f, x: f.partial(x, 1, 1), np.geomspace(1e-7, 1e-5, 8), -2),
        (D(0, 1), lambda f, x: f.partial(x, 0, 1), np.geomspace(1e-7, 1e-5, 8), -2),
        (Laplacian(), lambda f, x: f.laplacian(x), np.geomspace(1e-7, 1e-5, 8), -2),
    ],
    ids=["first", "second", "mixed", "laplacian"],
)
def test_below_the_best_step_rounding_grows_as_the_power_of_the_order(operator, truth, steps, expected, name):
    # Rounding is random: 2000 points bring its rms within a few per cent, and eight steps fix the slope.
    f, x = SMOOTH["2d"], points(2000, 2)
    errors = [rms(evaluate(f, x, operator, DIFFERENCE[name](h, 2))[0] - truth(f, x)) for h in steps]
    assert slope(steps, errors) == pytest.approx(expected, abs=0.25)


@pytest.mark.parametrize("name", DIFFERENCE)
def test_differences_of_values_are_the_values(name):
    f, x = SMOOTH["2d-vector"], points(5, 2)
    (value,) = evaluate(f, x, D(), DIFFERENCE[name](0.1, 2))
    assert torch.equal(value, f(x))


@pytest.mark.parametrize("engine", [FD(), EFD(), SFD()], ids=repr)
def test_the_value_needs_no_step(engine):
    f, x = SMOOTH["2d-vector"], points(5, 2)
    assert torch.equal(evaluate(f, x, D(), engine)[0], f(x))


STEPS_BY_AXIS = {"FD": FD((0.1, 0.3)), "EFD": EFD({1: (0.1, 0.3), 2: (0.2, 0.05)})}


@pytest.mark.parametrize("engine", STEPS_BY_AXIS.values(), ids=STEPS_BY_AXIS)
def test_steps_for_each_axis(engine):
    """x + y² and its differences are exact, and the third power shows which step was used: (x³)' is off by h²."""
    first = (0.1, 0.3)
    second = (0.1, 0.3) if isinstance(engine, FD) else (0.2, 0.05)
    x = points(6, 2)

    def cubes(x):
        return (x**3).sum(1, keepdim=True)

    def fourths(x):
        return (x**4).sum(1, keepdim=True)

    for axis in (0, 1):
        column = x[:, axis : axis + 1]
        (dx,) = evaluate(cubes, x, D(axis), engine)
        torch.testing.assert_close(dx, 3 * column**2 + first[axis] ** 2, rtol=1e-10, atol=1e-10)
        (dxx,) = evaluate(fourths, x, D(axis, axis), engine)
        torch.testing.assert_close(dxx, 12 * column**2 + 2 * second[axis] ** 2, rtol=1e-10, atol=1e-10)
    (laplacian,) = evaluate(fourths, x, Laplacian(), engine)
    expected = (12 * x**2).sum(1, keepdim=True) + 2 * (second[0] ** 2 + second[1] ** 2)
    torch.testing.assert_close(laplacian, expected, rtol=1e-10, atol=1e-10)
    (mixed,) = evaluate(lambda x: x[:, :1] * x[:, 1:], x, D(0, 1), engine)
    torch.testing.assert_close(mixed, torch.ones(6, 1, dtype=x.dtype), rtol=1e-10, atol=1e-10)


def test_a_direction_is_followed_in_steps_of_each_axis():
    """Along an axis the step is that axis's own, whatever the length of the vector."""
    engine, x = FD((0.1, 0.3)), points(6, 2)
    for axis, h in enumerate((0.1, 0.3)):
        v = torch.zeros_like(x)
        v[:, axis] = 5.0
        (value,) = evaluate(lambda x: (x**3).sum(1, keepdim=True), x, Along(v), engine)
        expected = 5 * (3 * x[:, axis : axis + 1] ** 2 + h**2)
        torch.testing.assert_close(value, expected, rtol=1e-10, atol=1e-10)


# -- rows through the network ------------------------------------------------------------------------------------


def burgers(u):
    return u.t + u * u.x - 0.01 * u.xx


def poisson(u, x, t):
    return u.xx + u.tt + torch.sin(x) * torch.sin(t)


def neumann(u, n):
    return u.along(n)


def robin(u, n):
    return u.along(n) + u


TWO_STEPS = {1: 1e-2, 2: 3e-2}
ROWS = [
    ("FD", FD(1e-2), burgers, 5),
    ("SFD", SFD(TWO_STEPS), burgers, 5),
    ("EFD", EFD(TWO_STEPS), burgers, 7),
    ("EFD with equal steps", EFD({1: 1e-2, 2: 1e-2}), burgers, 5),
    ("FD, accuracy 4", FD(1e-2, accuracy=4), burgers, 9),
    ("FD", FD(1e-2), poisson, 5),
    ("SFD", SFD(TWO_STEPS), poisson, 5),
    ("EFD", EFD(TWO_STEPS), poisson, 5),
    ("FD", FD(1e-2), neumann, 2),
    ("SFD", SFD(TWO_STEPS), neumann, 2),
    ("EFD", EFD(TWO_STEPS), neumann, 2),
    ("FD", FD(1e-2), robin, 3),
    ("SFD", SFD(TWO_STEPS), robin, 3),
    ("EFD", EFD(TWO_STEPS), robin, 3),
]


@pytest.mark.parametrize(
    ("engine", "equation", "rows"), [case[1:] for case in ROWS], ids=[f"{c[0]}: {c[2].__name__}" for c in ROWS]
)
def test_differences_are_one_forward_pass_with_no_row_too_many(engine, equation, rows):
    B = 20
    x = points(B, 2)
    model = Counted(mlp())
    # What coupling would be is tested elsewhere; its probe would be counted here.
    engine = replace(engine, coupled="ignore")
    data = {"n": vectors(x)} if equation in (neumann, robin) else {}
    Residual(equation, ("x", "t"), data=tuple(data))(model, x, engine, **data)
    assert model.rows == [rows * B]


def test_automatic_differentiation_is_one_forward_pass_of_the_batch():
    model = Counted(mlp())
    Residual(burgers, ("x", "t"))(model, points(20, 2), AD(coupled="ignore"))
    assert model.rows == [20]


def test_biharmonic_uses_the_thirteen_point_stencil_and_not_more():
    """Nine nodes on the axes and four off them; the mixed stencil's other five are among the nine."""
    model = Counted(mlp())
    evaluate(model, points(20, 2), Laplacian() @ Laplacian(), FD(0.1, coupled="ignore"))
    assert model.rows == [13 * 20]


# -- gradients ---------------------------------------------------------------------------------------------------


class Advection(nn.Module):
    """A network and a constant that is learned with it."""

    def __init__(self):
        super().__init__()
        self.network = mlp(outputs=2)
        self.speed = nn.Parameter(torch.tensor(0.7, dtype=torch.float64))

    def forward(self, x):
        return self.network(x)


def losses(model, x, v, engine):
    def equations(u, p):
        return u.t + model.speed * p.x + u * u.xx - 0.3 * u.laplacian(), p.d("x", "t") - model.speed * torch.sin(u)

    def boundary(u, p, v):
        return u.along(v) + p.along(v, order=2) + 0.5 * u

    first, second = Residual(equations, ("x", "t"))(model, x, engine)
    third = Residual(boundary, ("x", "t"), data=("v",))(model, x, engine, v=v)
    return {
        "equations": first.square().mean() + second.square().mean(),
        "boundary": third.square().mean(),
        "operators": sum(r.square().mean() for r in evaluate(model, x, [D(), D(0, 0, 1), Along(v, 3)], engine)),
    }


# At accuracy 6 the error of a step of 0.03 is far below 1e-6 for so smooth a network, and so is the rounding of a
# third derivative at this step; accuracy 4 needs a smaller step, which rounding still allows.
@pytest.mark.parametrize(
    "engine",
    [
        pytest.param(engine, id=f"{name}, accuracy {accuracy}")
        for step, accuracy in [(4e-3, 4), (3e-2, 6)]
        for name, engine in every_engine(step, accuracy).items()
        if name != "AD" and (accuracy == 6 or name in DIFFERENCE)
    ],
)
def test_gradients_with_respect_to_parameters_agree(engine):
    model, x = Advection(), points(12, 2)
    v = vectors(x)
    expected, found = losses(model, x, v, AD()), losses(model, x, v, engine)
    for name in expected:
        reference = parameter_gradients(expected[name], model)
        difference = parameter_gradients(found[name], model) - reference
        assert difference.norm() <= 1e-6 * reference.norm(), name
        if name == "equations":
            # Parameters come in the order of their names: the constant is the module's own and hence the first.
            assert next(iter(dict(model.named_parameters()))) == "speed"
            assert reference[0] != 0
            torch.testing.assert_close(difference[0], 0 * reference[0], rtol=0, atol=1e-6 * abs(reference[0].item()))


OPERATORS = [D(), D(0), Laplacian(), D(0, 1)]


@pytest.mark.parametrize("name", every_engine(1e-2, 6))
def test_without_grad_the_results_carry_no_graph(name):
    engine = every_engine(1e-2, 6)[name]
    model, x = mlp(outputs=2), points(5, 2)
    with torch.no_grad():
        plain = evaluate(model, x, [*OPERATORS, Along(vectors(x), 2)], engine)
    assert all(not value.requires_grad and value.grad_fn is None for value in plain)
    engine = every_engine(1e-2, 6)[name]
    attached = evaluate(model, x, [*OPERATORS, Along(vectors(x), 2)], engine)
    assert all(value.requires_grad for value in attached)
    # The same computation with and without a graph.
    torch.testing.assert_close(list(plain), [value.detach() for value in attached], rtol=1e-10, atol=1e-10)
    assert not x.requires_grad


@pytest.mark.parametrize("name", every_engine(1e-2, 6))
def test_inference_mode_changes_nothing_but_the_graph(name):
    model, x = mlp(outputs=2), points(5, 2)
    expected = evaluate(model, x, OPERATORS, every_engine(1e-2, 6)[name])
    with torch.inference_mode():
        inside = evaluate(model, x, OPERATORS, every_engine(1e-2, 6)[name])
        made_inside = evaluate(model, x.clone(), OPERATORS, every_engine(1e-2, 6)[name])
    for values in (inside, made_inside):
        assert not any(value.requires_grad for value in values)
        torch.testing.assert_close(list(values), [value.detach() for value in expected], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", every_engine(1e-2, 2))
def test_several_evaluations_share_one_backward_pass(name):
    """The probe for coupled samples puts buffers back, which must not disturb the graphs of earlier evaluations."""
    engine = every_engine(1e-2, 2)[name]
    model, x = network(lambda: nn.BatchNorm1d(8).eval()), points(5, 2)
    parts = [evaluate(model, x + shift, Laplacian(), engine)[0].square().mean() for shift in (0, 0.1, 0.2)]
    separate = sum(parameter_gradients(part, model) for part in parts)
    torch.testing.assert_close(parameter_gradients(sum(parts), model), separate, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", every_engine(2e-2, 6))
def test_points_that_require_grad_keep_theirs(name):
    engine = every_engine(2e-2, 6)[name]
    f, x = SMOOTH["2d"], points(6, 2).requires_grad_()
    u, ux, laplacian = evaluate(f, x, [D(), D(0), Laplacian()], engine)
    (gradient,) = torch.autograd.grad((u + 2 * ux + 3 * laplacian).sum(), x)
    fixed = x.detach()
    columns = [
        f.partial(fixed, i) + 2 * f.partial(fixed, 0, i) + 3 * (f.partial(fixed, 0, 0, i) + f.partial(fixed, 1, 1, i))
        for i in range(2)
    ]
    # At this step and accuracy the differences themselves are exact to about 1e-9.
    torch.testing.assert_close(gradient, torch.cat(columns, dim=1), rtol=1e-7, atol=1e-7)
    assert x.grad is None


@pytest.mark.parametrize("name", every_engine(1e-2, 2))
def test_the_points_are_left_alone(name):
    engine = every_engine(1e-2, 2)[name]
    x = points(5, 2)
    before = x.clone()
    evaluate(mlp(), x, OPERATORS, engine)
    assert torch.equal(x, before)
    assert not x.requires_grad
    assert x.grad is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", every_engine(0.25, 2))
def test_results_have_the_precision_and_shape_of_the_output(name, dtype):
    model, x = mlp(outputs=3).to(dtype), points(5, 2, dtype)
    for value in evaluate(model, x, [D(), D(0), Along(vectors(x))], every_engine(0.25, 2)[name]):
        assert value.dtype == dtype
        assert value.shape == (5, 3)
        assert value.isfinite().all()


@pytest.mark.parametrize("name", DIFFERENCE)
def test_a_small_step_along_a_vector_does_not_overflow_in_half_precision(name):
    x, step = torch.zeros(3, 2, dtype=torch.float16), 2.0**-9
    v = torch.tensor([[1.0, 0.0], [0.0, 1.0], [200.0, 0.0]], dtype=torch.float16)
    first, second = evaluate(lambda x: x.sum(1, keepdim=True), x, [Along(v), Along(v, 2)], DIFFERENCE[name](step, 2))
    torch.testing.assert_close(first, v.sum(1, keepdim=True))
    torch.testing.assert_close(second, torch.zeros_like(second))
    (curvature,) = evaluate(lambda x: 0.5 * x.square().sum(1, keepdim=True), x[:2], Along(v[:2], 2), FD(step))
    torch.testing.assert_close(curvature, torch.ones_like(curvature))


# -- random steps ------------------------------------------------------------------------------------------------


def steps_used(engine, count=1):
    """The step at each point, read off the rows that the network gets for a first derivative at the origin."""
    rows = []

    def model(x):
        rows.append(x)
        return x[:, :1]

    evaluate(model, torch.zeros(count, 2, dtype=torch.float64), D(0), engine)
    below, above = rows[0].reshape(2, count, 2)
    assert torch.equal(above, -below)
    assert (above[:, 1] == 0).all()
    return above[:, 0].abs()


def test_random_steps_are_log_uniform_in_their_range():
    low, high = 1e-3, 1e-1
    steps = steps_used(SFD({1: high, 2: low}, coupled="ignore"), 20_000)
    # The ends are rounded to single precision.
    assert steps.min() >= low * (1 - 1e-6)
    assert steps.max() <= high * (1 + 1e-6)
    position = torch.log(steps / low) / np.log(high / low)
    probabilities = torch.tensor([0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0], dtype=torch.float64)
    # A quantile of 20000 samples has a standard deviation of at most 0.5 / sqrt(20000) = 0.0035.
    torch.testing.assert_close(position.quantile(probabilities), probabilities, rtol=0, atol=0.015)


def test_random_steps_differ_between_calls_and_points():
    engine = SFD((1e-3, 1e-1), coupled="ignore")
    first, second = steps_used(engine, 50), steps_used(engine, 50)
    assert not torch.isclose(first, second).any()
    assert len(first.unique()) == 50


def test_random_steps_follow_the_global_seed():
    engine = SFD((1e-3, 1e-1), coupled="ignore")
    torch.manual_seed(3)
    first = steps_used(engine, 50)
    torch.manual_seed(3)
    assert torch.equal(steps_used(engine, 50), first)


def test_a_generator_makes_random_steps_repeatable_by_themselves():
    def sequence(seed):
        engine = SFD((1e-3, 1e-1), generator=torch.Generator().manual_seed(7), coupled="ignore")
        torch.manual_seed(seed)
        state = torch.get_rng_state()
        used = torch.stack([steps_used(engine, 50) for _ in range(2)])
        assert torch.equal(torch.get_rng_state(), state)
        return used

    first = sequence(0)
    assert torch.equal(sequence(1), first)
    assert not torch.isclose(first[0], first[1]).any()


def test_all_orders_of_a_call_share_the_random_step():
    engine = SFD((0.1, 0.4), generator=torch.Generator().manual_seed(0))
    x = points(30, 1)
    first, second = evaluate(lambda x: x**3 + x**4, x, [D(0), D(0, 0)], engine)
    # The errors of (x³ + x⁴)' and (x³ + x⁴)'' are h²(1 + 4x) and 2h² exactly.
    from_first = (first - 3 * x**2 - 4 * x**3) / (1 + 4 * x)
    from_second = (second - 6 * x - 12 * x**2) / 2
    torch.testing.assert_close(from_first, from_second, rtol=1e-8, atol=1e-8)


# -- devices -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", every_engine(1e-2, 4))
def test_no_tensor_is_made_on_another_device(name):
    """On the meta device any tensor from elsewhere raises an error."""
    engine = every_engine(1e-2, 4)[name]
    model = mlp(outputs=3).to("meta")
    x = torch.empty(3, 2, dtype=torch.float64, device="meta")
    operators = [D(), D(0), D(0, 1), Laplacian(), Along(torch.empty_like(x), 2), D(0) + Along(x), 0 * D()]
    for value in evaluate(model, x, operators, engine):
        assert value.device.type == "meta"
        assert value.shape == (3, 3)
    residual = Residual(lambda u, v, w: u.t + v * u.x - 0.1 * w.laplacian() + 1, ("x", "t"))
    assert residual(model, x, engine).device.type == "meta"


@pytest.mark.parametrize("engine", STEPS_BY_AXIS.values(), ids=STEPS_BY_AXIS)
def test_steps_for_each_axis_are_made_on_the_device_of_the_points(engine):
    x = torch.empty(5, 2, dtype=torch.float64, device="meta")
    (value,) = evaluate(mlp().to("meta"), x, D(0) + Laplacian() + Along(x), engine)
    assert value.device.type == "meta"


# -- the plan of automatic differentiation -----------------------------------------------------------------------

U, X, Y = (), (0,), (1,)


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ([U], []),
        ([X], [U]),
        ([X, Y], [U]),
        ([(0, 1), (1, 1)], [U, Y]),
        ([(0, 0), (0, 1)], [U, X]),
        ([(0, 0), (1, 1)], [U, X, Y]),
        ([(0, 0), (0, 1), (1, 1)], [U, X, Y]),
        ([(0, 1)], [U, X]),
        ([(0, 0, 0), (0, 0, 1)], [U, X, (0, 0)]),
        ([(0, 0, 0, 0), (0, 0, 1, 1), (1, 1, 1, 1)], None),
    ],
    ids=str,
)
def test_prefixes_are_shared(wanted, expected):
    chosen = gradients_needed(wanted)
    if expected is not None:
        assert Counter(chosen) == Counter(expected)
    # Whatever is chosen must be reachable: known before it is differentiated, and everything wanted known at the end.
    known = {U}
    for prefix in chosen:
        assert prefix in known
        known |= {tuple(sorted((*prefix, axis))) for axis in (0, 1)}
    assert set(wanted) <= known


SECOND = [tuple(sorted(axes)) for axes in itertools.combinations_with_replacement(range(3), 2)]


@pytest.mark.parametrize(
    "wanted", [c for size in range(1, 7) for c in itertools.combinations(SECOND, size)], ids=lambda w: "".join(str(w))
)
def test_up_to_second_order_the_number_of_gradients_is_the_least_possible(wanted):
    """Compared with every other choice of gradients, of which there are few for three variables."""
    prefixes = [U, (0,), (1,), (2,)]

    def suffices(chosen):
        known = {U}
        for prefix in chosen:
            if prefix not in known:
                return False
            known |= {tuple(sorted((*prefix, axis))) for axis in range(3)}
        return set(wanted) <= known

    every = (c for size in range(len(prefixes) + 1) for c in itertools.combinations(prefixes, size))
    least = next(len(chosen) for chosen in every if suffices(chosen))
    assert len(gradients_needed(wanted)) == least


@pytest.fixture
def gradient_calls(monkeypatch):
    calls = []
    original = torch.autograd.grad

    def counted(*args, **kwargs):
        calls.append(kwargs.get("create_graph"))
        return original(*args, **kwargs)

    monkeypatch.setattr(torch.autograd, "grad", counted)
    return calls


@pytest.mark.parametrize(
    ("operators", "count"),
    [
        ([D()], 0),
        ([D(0), D(1)], 1),
        ([Laplacian()], 3),
        ([D(0, 1), D(1, 1)], 2),
        ([D(), D(0), D(1) - 0.1 * D(0, 0)], 2),
        ([D(0), Laplacian(), D(0, 1)], 3),
    ],
    ids=str,
)
def test_automatic_differentiation_takes_each_gradient_once(operators, count, gradient_calls):
    evaluate(mlp(), points(5, 2), operators, AD())
    assert len(gradient_calls) == count


def test_a_direction_shares_the_gradient_with_the_axes(gradient_calls):
    x = points(5, 2)
    v = vectors(x)
    evaluate(mlp(), x, [D(0), Along(v), Along(v, 2)], AD())
    assert len(gradient_calls) == 2


def test_without_grad_the_last_gradient_builds_no_graph(gradient_calls):
    with torch.no_grad():
        evaluate(mlp(), points(5, 2), [D(0, 0)], AD())
    assert gradient_calls == [True, False]
