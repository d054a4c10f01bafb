"""Integrals and fractional derivatives: closed forms, orders of convergence, every engine, gradients, refusals."""

from math import cos, exp, gamma, pi

import numpy as np
import pytest
import torch
from helpers import Counted, every_engine, mlp, parameter_gradients, points, rms
from scipy.special import hyp1f1

import dudx
from dudx import AD, FD, Residual, Taylor
from dudx.errors import InputError
from dudx.residual.nonlocal_terms.quadrature import caputo_l1, gauss, grunwald

X = points(15, 2) * 0.4 + 0.5  # x and t in (0.1, 0.9)


def column(x, axis):
    return x[:, axis : axis + 1]


def power(p):
    """A network that is x t^p."""
    return lambda x: column(x, 0) * column(x, 1) ** p


def of(term, model, x=X, engine=None, inputs=("x", "t")):
    return Residual(term, inputs)(model, x, engine or AD())


# -- weights -------------------------------------------------------------------------------------------------------


def test_grunwald_weights_are_the_binomial_series():
    alpha, z = 0.7, 0.3
    assert grunwald(alpha, 60) @ z ** np.arange(61) == pytest.approx((1 - z) ** alpha, abs=1e-15)


def test_l1_weights_are_exact_for_straight_lines_on_any_mesh():
    for grading in (1.0, 3.0):
        mesh, weights = caputo_l1(0.4, 9, grading)
        assert weights.sum() == pytest.approx(0, abs=1e-12)
        assert weights @ mesh == pytest.approx(1 / gamma(1.6))


# -- the Caputo derivative -----------------------------------------------------------------------------------------


def caputo_of_power(alpha, p, x=X):
    return column(x, 0) * gamma(p + 1) / gamma(p + 1 - alpha) * column(x, 1) ** (p - alpha)


@pytest.mark.parametrize("alpha", [0.3, 0.5, 0.8])
@pytest.mark.parametrize(("method", "order"), [("l1", lambda alpha: 2 - alpha), ("grunwald", lambda alpha: 1)])
def test_caputo_converges_at_its_order(alpha, method, order):
    counts, errors = [32, 64, 128, 256], []
    for count in counts:
        found = of(lambda u: u.caputo("t", alpha, nodes=count, method=method), power(3))  # noqa: B023
        errors.append(rms(found - caputo_of_power(alpha, 3)))
    slope = -np.polyfit(np.log(counts), np.log(errors), 1)[0]
    assert slope == pytest.approx(order(alpha), abs=0.12)


def test_a_graded_mesh_follows_a_solution_that_begins_like_t_to_the_alpha():
    alpha, counts, slopes = 0.4, [32, 64, 128], []
    for grading in (1.0, (2 - alpha) / alpha):
        errors = []
        for count in counts:
            found = of(lambda u: u.caputo("t", alpha, nodes=count, grading=grading), power(alpha))  # noqa: B023
            errors.append(rms(found - caputo_of_power(alpha, alpha)))
        slopes.append(-np.polyfit(np.log(counts), np.log(errors), 1)[0])
    assert slopes == pytest.approx([1 + alpha, 2 - alpha], abs=0.12)


def test_orders_above_one_and_another_start():
    found = of(lambda u: u.caputo("t", 1.5, nodes=400), power(3))
    torch.testing.assert_close(found, caputo_of_power(1.5, 3), rtol=0, atol=2e-3)
    torch.testing.assert_close(of(lambda u: u.caputo("t", 2), power(3)), of(lambda u: u.tt, power(3)))
    moved = lambda x: power(2)(x + torch.tensor([0.0, 1.0]))  # noqa: E731  (of t + 1, from -1 on)
    found = of(lambda u: u.caputo("t", 0.5, start=-1.0, nodes=400), moved)
    later = X + torch.tensor([0.0, 1.0])
    torch.testing.assert_close(found, caputo_of_power(0.5, 2, later), rtol=0, atol=1e-3)
    # At the start it is zero, and finite.
    x = torch.tensor([[0.5, 0.0], [0.5, 0.1]], dtype=torch.float64)
    assert of(lambda u: u.caputo("t", 0.5), power(2), x)[0] == 0


# -- the fractional Laplacian --------------------------------------------------------------------------------------


def riesz_of_bump(alpha, x):
    """(-∂²)^(α/2) of (1 - x²)^(1 + α/2), zero outside (Dyda 2012)."""
    constant = 2**alpha * gamma(alpha / 2 + 2) * gamma((1 + alpha) / 2) / gamma(0.5)
    return constant * (1 - (1 + alpha) * x**2)


@pytest.mark.parametrize("alpha", [0.4, 1.3, 1.7])
def test_the_fractional_laplacian_is_the_closed_form(alpha):
    x = torch.linspace(-0.7, 0.7, 11, dtype=torch.float64).unsqueeze(1)
    bump = lambda x: (1 - x**2).clamp(min=0) ** (1 + alpha / 2)  # noqa: E731
    counts, errors = [64, 128, 256], []
    for count in counts:
        found = of(lambda u: u.fractional_laplacian("x", alpha, (-1, 1), count), bump, x, inputs=("x",))  # noqa: B023
        errors.append(rms(found - riesz_of_bump(alpha, x)))
    assert errors[-1] < 2e-3
    assert -np.polyfit(np.log(counts), np.log(errors), 1)[0] > 1.75


def test_it_is_of_second_order_where_the_solution_is_smooth_at_the_walls():
    alpha, x = 1.5, torch.linspace(0.05, 0.95, 13, dtype=torch.float64).unsqueeze(1)
    smooth = {3: 1.0, 4: -3.0, 5: 3.0, 6: -1.0}  # x³ (1 - x)³
    half = lambda y: sum(c * gamma(p + 1) / gamma(p + 1 - alpha) * y ** (p - alpha) for p, c in smooth.items())  # noqa: E731
    truth = (half(x) + half(1 - x)) / (2 * cos(pi * alpha / 2))
    counts, errors = [64, 128, 256, 512], []
    for count in counts:
        found = of(
            lambda u: u.fractional_laplacian("x", alpha, (0, 1), count),  # noqa: B023
            lambda x: x**3 * (1 - x) ** 3,
            x,
            inputs=("x",),
        )
        errors.append(rms(found - truth))
    assert -np.polyfit(np.log(counts), np.log(errors), 1)[0] == pytest.approx(2, abs=0.15)


def test_the_network_is_never_asked_outside_of_the_interval():
    x = torch.tensor([[1e-6], [0.5], [1 - 1e-6]], dtype=torch.float64)
    only_inside = lambda x: torch.where((x < 0) | (x > 1), torch.nan, x * (1 - x))  # noqa: E731
    assert of(lambda u: u.fractional_laplacian("x", 1.5, (0, 1), 8), only_inside, x, inputs=("x",)).isfinite().all()


# -- integrals -----------------------------------------------------------------------------------------------------


def test_gauss_is_exact_for_polynomials():
    nodes, weights = gauss(4)
    for degree in range(8):
        assert weights @ nodes**degree == pytest.approx(1 / (degree + 1))


def test_integrals_between_numbers_inputs_and_over_everything():
    u = lambda x: torch.sin(column(x, 0)) * torch.exp(column(x, 1))  # noqa: E731
    x, t = column(X, 0), column(X, 1)
    cases = {
        "volterra": (lambda u, t: u.integral({"t": (0, t)}), torch.sin(x) * (torch.exp(t) - 1)),
        "over x": (lambda u: u.integral({"x": (0, 1)}), (1 - cos(1)) * torch.exp(t)),
        "everything": (lambda u: u.integral({"x": (0, 1), "t": (0, 2)}), (1 - cos(1)) * (exp(2) - 1) + 0 * x),
        "a square": (lambda u: u.integral({"x": (0, pi)}, of=torch.square), pi / 2 * torch.exp(2 * t)),
        "a kernel": (
            lambda u, t: u.integral({"t": (0, t)}, kernel=lambda here, there: torch.exp(here.t - there.t)),
            torch.sin(x) * t * torch.exp(t),
        ),
        "a derivative": (lambda u: (u.x + 2).integral({"x": (0, 1)}), np.sin(1) * torch.exp(t) + 2),
        "an expression": (
            lambda u, x, t: u.integral({"t": (x, x + t)}),
            torch.sin(x) * (torch.exp(x + t) - torch.exp(x)),
        ),
    }  # fmt: skip
    for name, (term, truth) in cases.items():
        assert rms(of(term, u) - truth) < 1e-12, name


def test_what_is_the_same_at_every_point_is_computed_once():
    model, x = Counted(mlp()), points(50, 2)
    of(lambda u: u.integral({"x": (0, 1), "t": (0, 1)}, nodes=5), model, x, AD(coupled="ignore"))
    assert sorted(model.rows) == [25, 50]


# -- with everything else ------------------------------------------------------------------------------------------


def equation(u, x, t):
    memory = u.integral({"t": (0, t)}, nodes=4, kernel=lambda here, there: here.t - there.t)
    return u.caputo("t", 0.6, nodes=8) + u * u.x - 0.1 * u.xx + memory + u.x.integral({"x": (0, 1)}, nodes=3)


def by_hand(network, x):
    """Compute the quadrature sums with explicit loops."""
    at = lambda row, axis, value: torch.cat([row[:axis], value.reshape(1), row[axis + 1 :]])  # noqa: E731
    mesh, weights = caputo_l1(0.6, 8, 1.0)
    results = []
    for row in x:
        t = row[1]
        rows = torch.stack([at(row, 1, t * float(m)) for m in mesh])
        total = t**-0.6 * (torch.as_tensor(weights) @ network(rows).flatten())
        u, ux, uxx = dudx.evaluate(network, row[None], [dudx.D(), dudx.D(0), dudx.D(0, 0)], AD())
        total = total + (u * ux - 0.1 * uxx)[0, 0]
        for s, w in zip(*gauss(4), strict=True):
            total = total + t * float(w) * (t - t * float(s)) * network(at(row, 1, t * float(s))[None])[0, 0]
        for s, w in zip(*gauss(3), strict=True):
            there = at(row, 0, torch.tensor(float(s)).to(x))[None]
            total = total + float(w) * dudx.evaluate(network, there, dudx.D(0), AD())[0, 0]
        results.append(total)
    return torch.stack(results).unsqueeze(1)


ENGINES = every_engine(1e-2, 4) | {"STDE": dudx.STDE(samples=2)}


@pytest.mark.parametrize("name", ENGINES)
def test_every_engine_has_them_and_their_gradients(name):
    network, x = mlp(), X[:6]
    residual = Residual(equation, ("x", "t"))
    found, truth = residual(network, x, ENGINES[name]), by_hand(network, x)
    torch.testing.assert_close(found, truth, rtol=0, atol=1e-6)
    gradients = [parameter_gradients(r.square().mean(), network) for r in (found, truth)]
    torch.testing.assert_close(*gradients, rtol=0, atol=1e-5)
    again = residual(network, x + 0.01, ENGINES[name])  # recorded before, at other points
    torch.testing.assert_close(again, by_hand(network, x + 0.01), rtol=0, atol=1e-6)


def test_slices_jacobians_ensembles_isolation_and_data():
    network, x = mlp(), X[:6]
    residual = Residual(equation, ("x", "t"))
    loss = residual.loss(network, x, AD())
    torch.testing.assert_close(dudx.backward(lambda x: residual.loss(network, x, AD()), x, chunk=4), loss.detach())
    _, jacobian = residual.jacobian(network, x, Taylor())
    truth = torch.stack([parameter_gradients(r, network) for r in by_hand(network, x).flatten()])
    torch.testing.assert_close(jacobian, truth)
    everywhere = Residual(lambda u: u + u.integral({"x": (0, 1), "t": (0, 1)}, nodes=3), ("x", "t"))
    rows = torch.stack([parameter_gradients(r, network) for r in everywhere(network, X[:9], AD()).flatten()])
    torch.testing.assert_close(everywhere.jacobian(network, X[:9], AD())[1], rows)  # 9 nodes for 9 points
    together = residual(dudx.ensemble([network, mlp(seed=1)]), x, AD())
    torch.testing.assert_close(together[0], residual(network, x, AD()))

    coupled = lambda x: network(x) + 0.1 * torch.tanh(network(x).mean(0))  # noqa: E731
    with pytest.raises(dudx.CoupledModelError):
        residual(coupled, x, AD())
    with pytest.raises(dudx.CoupledModelError, match="elsewhere than at the batch"):
        residual(coupled, x, dudx.PerSampleAD())
    isolated = dudx.isolate(coupled, x)
    moved = lambda row, i: isolated(torch.cat([x[:i], row, x[i + 1 :]]))[i : i + 1]  # noqa: E731
    truth = torch.cat(
        [by_hand(lambda rows, i=i: torch.cat([moved(r[None], i) for r in rows]), x[i : i + 1]) for i in range(len(x))]
    )
    torch.testing.assert_close(residual(isolated, x, AD()), truth)

    scaled = Residual(equation, ("x", "t"), network_data=("a",))
    a = points(6, 1, seed=5)
    found = scaled(lambda x, a: a * network(x), x, FD(1e-3, 4), a=a)
    truth = torch.cat([by_hand(lambda rows, i=i: a[i] * network(rows), x[i : i + 1]) for i in range(6)])
    torch.testing.assert_close(found, truth, rtol=0, atol=1e-7)


def test_compiled_it_says_that_it_is_not():
    residual = Residual(lambda u: u.caputo("t", 0.5), ("x", "t"), compile=True)
    with pytest.warns(dudx.errors.CompilationWarning, match="fractional"):
        found = residual(mlp(), X, Taylor())
    torch.testing.assert_close(found, of(lambda u: u.caputo("t", 0.5), mlp()))


def test_closed_form_of_an_exponential():
    """E of the order 1 - α: ∫ e^s (t - s)^-α ds = t^(1-α) / (1-α) · 1F1(1; 2-α; t)."""
    alpha, t = 0.5, column(X, 1)
    truth = torch.as_tensor(hyp1f1(1, 2 - alpha, t.numpy())) * t ** (1 - alpha) / (1 - alpha) / gamma(1 - alpha)
    found = of(lambda u: u.caputo("t", alpha, nodes=500), lambda x: torch.exp(column(x, 1)))
    torch.testing.assert_close(found, truth, rtol=0, atol=1e-4)


REFUSED = {
    "begins at t": lambda u: u.caputo("t", 0.5, start=0.5),
    "positive": lambda u: u.caputo("t", -0.5),
    "must be a number": lambda u: u.caputo("t", torch.tensor(0.5)),
    "one of 'l1', 'grunwald'": lambda u: u.caputo("t", 0.5, method="l2"),
    "equal steps": lambda u: u.caputo("t", 0.5, method="grunwald", grading=2.0),
    "whole number, 1 or more": lambda u: u.caputo("t", 0.5, nodes=0),
    "no input named 's'": lambda u: u.caputo("s", 0.5),
    "and not 1": lambda u: u.fractional_laplacian("x", 1.0, (0, 1)),
    "order 2 is": lambda u: u.fractional_laplacian("x", 2, (0, 1)),
    "take points inside": lambda u: u.fractional_laplacian("x", 1.5, (0.5, 1)),
    "to a larger one": lambda u: u.fractional_laplacian("x", 1.5, (1, 0)),
    "of=lambda u": lambda u: (u * u).integral({"x": (0, 1)}),
    "by hand": lambda u, x: x.d("t").integral({"x": (0, 1)}) + u,
    "known beforehand": lambda u: u.integral({"x": (0, u)}),
    "numbers, inputs": lambda u: u.integral({"x": (0, "1")}),
    "cannot be differentiated": lambda u: u.caputo("t", 0.5).x,
    "along vectors": lambda u, x: u.along(torch.ones_like(x).expand(-1, 2)).integral({"x": (0, 1)}),
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_it_cannot_do_is_one_sentence(words):
    with pytest.raises(InputError, match=words):
        of(REFUSED[words], mlp())


@pytest.mark.parametrize(
    ("term", "words"),
    [
        (lambda u: u.integral({"t": 3}), "a beginning and an end"),
        (lambda u: u.integral("t"), "bounds by the names of inputs"),
        (lambda u: u.integral({}), "bounds by the names of inputs"),
        (lambda u: u.integral({"t": (0, 1)}, kernel=2.0), "kernel= of an integral is a function"),
        (lambda u: u.integral({"t": (0, 1)}, of=2.0), "of= of an integral is a function"),
        (lambda u: u.integral({"t": (0, 1)}, of=torch.sum), "a number for each node and point"),
        (lambda u: u.caputo("t", 0.5, start="0"), "start= takes finite numbers"),
        (lambda u: u.fractional_laplacian("t", 0.5, within=1.0), "a beginning and an end"),
        (lambda u: u.fractional_laplacian("t", 0.5, within=("a", "b")), "within= takes finite numbers"),
    ],
)
def test_wrong_arguments_are_refused_in_a_sentence(term, words):
    with pytest.raises(dudx.errors.InputError, match=words):
        dudx.Residual(term, ("x", "t"))(torch.sin, torch.rand(3, 2), dudx.AD())


@pytest.mark.parametrize("held", ["data", "isolated"])
def test_samples_keep_their_own_network_beside_another_one(held):
    x = torch.rand(4, 2, dtype=torch.float64)  # as many as divide the nodes, so that counting rows does not tell
    if held == "data":
        model = dudx.given(lambda x, a: torch.sin(a * x[:, :1]) * x[:, 1:], a=torch.rand(4, 1, dtype=torch.float64))
    else:
        model = dudx.isolate(lambda x: torch.sin(x[:, :1] + x.mean(0, keepdim=True)[:, 1:]), x)
    everywhere = {"x": (0, 1), "t": (0, 1)}
    alone = dudx.Residual(lambda u: u.integral(everywhere) + u.xx, ("x", "t"))
    beside = dudx.Residual(
        lambda u, k: u.integral(everywhere) + u.xx + 0 * k, ("x", "t"), networks={"k": lambda x: x[:, :1]}
    )
    for engine in (dudx.AD(), dudx.Taylor(), dudx.FD(1e-3)):
        torch.testing.assert_close(beside(model, x, engine), alone(model, x, engine))
