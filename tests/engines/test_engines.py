"""Requirements on every engine: closed forms, gradients, precision, devices."""

import pytest
import torch
from helpers import DIFFERENCE, EXACT, FUNCTIONS, SMOOTH, every_engine, mlp, parameter_gradients, points
from operator_cases import grid, vectors
from torch import nn

from dudx import AD, FD, Along, D, Laplacian, PerSampleAD, Residual, evaluate


@pytest.mark.parametrize("engine", EXACT.values(), ids=EXACT)
@pytest.mark.parametrize(("f", "operator", "truth"), grid(FUNCTIONS))
def test_exact_engines_agree_with_the_closed_form(f, operator, truth, engine):
    x = points(4, f.dimensions)
    v = vectors(x)
    value = evaluate(f, x, operator(v), engine)
    # Derivatives up to order four are of order ten, and rounding is 1e-15 of that; 1e-9 leaves room.
    torch.testing.assert_close(value, truth(f, x, v), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("engine", EXACT.values(), ids=EXACT)
def test_operators_asked_for_together_are_those_asked_for_alone(engine):
    f, x = SMOOTH["3d-vector"], points(5, 3)
    v, w = vectors(x), vectors(x).flip(0)
    together = [D(0, 1), D(), Along(v), D(2, 2, 0), Along(w, 2), Along(v, 2), Laplacian(), D(0), D(0, 1)]
    alone = [evaluate(f, x, operator, engine) for operator in together]
    # Equal sums, in a different order of summation.
    torch.testing.assert_close(list(evaluate(f, x, together, engine)), alone, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("chunk", [1, 3, 100])
def test_per_sample_results_do_not_depend_on_the_chunk(chunk):
    f, x = SMOOTH["2d"], points(7, 2)
    whole = evaluate(f, x, Laplacian(), PerSampleAD())
    pieces = evaluate(f, x, Laplacian(), PerSampleAD(chunk=chunk))
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
    value = evaluate(f, x, Along(v, order), engine)
    assert value[1].item() == 0
    assert (value[[0, 2, 3]] != 0).all()


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
    # Equal computations, with and without a graph.
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
    curvature = evaluate(lambda x: 0.5 * x.square().sum(1, keepdim=True), x[:2], Along(v[:2], 2), FD(step))
    torch.testing.assert_close(curvature, torch.ones_like(curvature))


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
