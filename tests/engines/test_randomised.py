"""Operators in many dimensions: a random few of their terms, and derivatives by forward passes around each point."""

import itertools
import math
import pickle
from fractions import Fraction

import pytest
import torch
from helpers import SMOOTH, Function, Sine, mlp, parameter_gradients, points
from operator_cases import vectors

from dudx import AD, FD, STDE, Along, D, Laplacian, Residual, Taylor, evaluate
from dudx.engines.stochastic_taylor import polarisation
from dudx.errors import InputError, UnsupportedError


@pytest.mark.parametrize("pattern", [(1,), (3,), (1, 1), (2, 1), (2, 2), (3, 1), (1, 1, 1), (2, 1, 1)])
def test_mixed_derivatives_are_sums_of_derivatives_along_vectors(pattern):
    """As polynomials, by their values at more places than they have coefficients."""
    for place in itertools.product((Fraction(-2), Fraction(1, 3), Fraction(5, 7)), repeat=len(pattern)):
        monomial = math.prod(x**n for x, n in zip(place, pattern, strict=True))
        mixtures = polarisation(pattern)
        powers = [
            weight * sum(a * x for a, x in zip(mixture, place, strict=True)) ** sum(pattern)
            for mixture, weight in mixtures
        ]
        assert sum(powers) == monomial


MANY = Function((((1.0, tuple(Sine(0.3 + 0.1 * i, 0.2 * i) for i in range(6))),),))
PAIRS = sum((D(i, j) for i, j in itertools.combinations(range(6), 2)), 0 * D())


@pytest.mark.parametrize(
    ("operator", "truth"),
    [
        (D(0) - 0.5 * Laplacian(), lambda f, x: f.partial(x, 0) - 0.5 * f.laplacian(x)),
        (Laplacian() @ Laplacian(), lambda f, x: f.biharmonic(x)),
        (
            PAIRS + 2 * D(),
            lambda f, x: sum(f.partial(x, i, j) for i, j in itertools.combinations(range(6), 2)) + 2 * f(x),
        ),
        (sum((D(i) for i in range(6)), 0 * D()), lambda f, x: sum(f.partial(x, i) for i in range(6))),
    ],
    ids=["heat", "biharmonic", "mixed", "gradient"],
)
def test_the_estimate_of_any_operator_is_unbiased_and_knows_its_error(operator, truth):
    point = points(1, 6)
    many = point.expand(3000, 6).contiguous()
    engine = STDE(3, generator=torch.Generator().manual_seed(0))
    ((draws, errors),) = engine.estimated(MANY, many, [operator])
    exact = truth(MANY, point)
    standard_error = draws.std() / len(many) ** 0.5
    assert standard_error > 0
    assert (draws.mean() - exact).abs() < 4 * standard_error
    # The variance that each draw reports is the variance of the draws; 3000 of them know it to a few per cent.
    assert errors.square().mean().sqrt().item() == pytest.approx(draws.std().item(), rel=0.15)


def test_the_seed_of_the_points_may_be_that_of_the_draws():
    """With equal seeds the sampled axes must not correlate with the coordinates of the points."""
    x = torch.rand(400, 50, generator=torch.Generator().manual_seed(0), dtype=torch.float32).double()
    generator = torch.Generator().manual_seed(0)
    cubes = lambda x: (x**3).sum(1, keepdim=True) / 6  # noqa: E731  (whose second derivatives are the coordinates)
    value = evaluate(cubes, x, Laplacian(), STDE(4, generator=generator))
    error = value - x.sum(1, keepdim=True)
    assert error.mean().abs() < 4 * error.std() / len(x) ** 0.5


@pytest.mark.parametrize("inner", [Taylor(), AD(), FD(1e-2, 4)], ids=["Taylor", "AD", "FD"])
def test_as_many_samples_as_terms_are_the_operator_itself(inner):
    f, x = SMOOTH["3d-vector"], points(7, 3)
    v = vectors(x)
    request = [Laplacian(), D(0, 1), Along(v, 2) + D(2), D(), 0 * D()]
    ours, exact = (evaluate(f, x, request, engine) for engine in (STDE(3, inner), inner))
    torch.testing.assert_close(list(ours), list(exact))


def test_parameter_gradients_are_those_of_the_drawn_operator():
    model, x = mlp(8), points(6, 8)
    gradients = []
    for inner in (Taylor(), AD()):
        engine = STDE(2, inner, torch.Generator().manual_seed(5))
        value = evaluate(model, x, Laplacian() + D(0, 1), engine)
        gradients.append(parameter_gradients(value.square().mean(), model))
    torch.testing.assert_close(*gradients)


def test_each_call_draws_anew_and_slices_are_sized_without_drawing():
    model, x = mlp(50), points(20, 50)
    engine = STDE(4, generator=torch.Generator().manual_seed(0))
    residual = Residual(lambda u: u.laplacian() + u, [f"x{i}" for i in range(50)])
    first, second = (residual(model, x, engine) for _ in range(2))
    assert not torch.equal(first, second)
    before = engine.generator.get_state()
    assert engine.rows(x, residual.operators(x)).at_once < 20  # and not a hundred
    assert torch.equal(engine.generator.get_state(), before)
    assert pickle.loads(pickle.dumps(STDE(4))) == STDE(4)


@pytest.mark.usefixtures("only_traced")
@pytest.mark.parametrize("compile", [False, True])
def test_the_mean_of_residuals_is_the_exact_one(compile):
    names = [f"x{i}" for i in range(20)]
    model, x = mlp(20), points(30, 20)
    residual = Residual(lambda u: u.laplacian() - torch.sin(u), names, compile=compile)
    first, second = (residual(model, x, STDE(4)) for _ in range(2))
    assert (residual.compile_seconds > 0) == compile
    assert not torch.equal(first, second)
    mean = torch.stack([residual(model, x, STDE(4)) for _ in range(200)]).mean(0)
    exact = residual(model, x, Taylor())
    assert (mean - exact).abs().mean() < 0.25 * (first - exact).abs().mean()


def test_a_generator_makes_the_draws_repeatable():
    model, x = mlp(7), points(9, 7)
    first, again, other = (
        evaluate(model, x, Laplacian(), STDE(2, generator=torch.Generator().manual_seed(seed))) for seed in (1, 1, 2)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_the_cost_does_not_grow_with_the_dimension():
    for inner, rows in ((FD(1e-3), 7), (Taylor(), 5)):
        assert {STDE(3, inner).rows(points(8, d), Laplacian()).at_once for d in (10, 1000)} == {rows}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: STDE(0), "1 or more"),
        (lambda: STDE(inner="taylor"), "an engine such as"),
        (lambda: STDE(1).estimated(torch.sin, points(3, 2), [D(0)]), "two or more"),
    ],
)
def test_what_cannot_be_is_one_sentence(make, message):
    with pytest.raises(InputError, match=message):
        make()


def test_nothing_is_made_on_another_device():
    x = torch.empty(3, 40, dtype=torch.float64, device="meta")
    model = mlp(40).to("meta")
    assert evaluate(model, x, D(0) + Laplacian(), STDE(4)).device.type == "meta"


def test_meeting_a_network_of_many_variables_takes_no_stream_for_each_of_them():
    asked = []

    class Streams(Taylor):
        def derivatives(self, model, x, request):
            asked.append(len(request.operators))
            return super().derivatives(model, x, request)

    model, x = mlp(10_000, 1).float(), torch.rand(4, 10_000)
    assert evaluate(model, x, Laplacian(), STDE(4, inner=Streams())).shape == (4, 1)
    assert max(asked, default=0) < 100


def test_a_hidden_axis_among_many_is_noticed():
    def hides(x):
        return x[:, 1:].sin().sum(1, keepdim=True) + x[:, :1].detach().exp()

    x = torch.rand(4, 300, dtype=torch.float64)
    for dimensions in (3, 300):
        with pytest.raises(UnsupportedError):
            evaluate(hides, x[:, :dimensions], Laplacian(), Taylor())
