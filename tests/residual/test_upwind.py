"""First derivatives from the side that the flow comes from."""

import numpy as np
import pytest
import torch
from helpers import EXACT, SMOOTH, mlp, parameter_gradients, points, rms

import dudx
from dudx import CAN, EFD, FD, SFD, STDE, D, Residual, Taylor, evaluate
from dudx.engines.interface import one_sided
from dudx.errors import InputError, UnsupportedError

X = points(40, 2)
#: Engines that can look one way, by their step.
TURNING = {
    "CAN": lambda h: CAN(h),
    "FD": lambda h: FD(h),
    "FD, accuracy 4": lambda h: FD(h, 4),
    "EFD": lambda h: EFD({1: h}),
    "SFD": lambda h: SFD((h / 1.2, h), generator=torch.Generator().manual_seed(0)),
}


def upwind(model, x, engine, by=None):
    """Along x, by the network itself unless another flow is given."""
    return Residual(lambda u: u.upwind("x", by=u if by is None else by), ("x", "y"))(model, x, engine)


def kink(x):
    """|x|, whose slope is another on each side of 0."""
    return x[:, :1].abs() + 0 * x[:, 1:]


@pytest.mark.parametrize("name", TURNING)
@pytest.mark.parametrize(("flow", "slope"), [(1.0, -1.0), (-1.0, 1.0)])
def test_it_looks_to_where_the_flow_comes_from(name, flow, slope):
    """At a kink both sides are known: what comes from below has the slope there."""
    at_the_kink = torch.zeros(3, 2, dtype=torch.float64)
    if name == "CAN":  # its own slope at the kink is neither: (u - u_W)/h + (u' - u'_W)/2 with u' = 0
        slope = slope / 2
    found = upwind(kink, at_the_kink, TURNING[name](0.1), flow)
    torch.testing.assert_close(found, torch.full_like(found, slope), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["CAN", "FD", "EFD"])
def test_each_point_has_its_own_side(name):
    """Against the engines that look one way everywhere, point by point, in a network and by its own sign."""
    model, engine = mlp(2, 1), TURNING[name](0.2)
    u = model(X)
    assert 0 < int((u > 0).sum()) < len(u)
    back, ahead = (evaluate(model, X, D(0), one_sided(engine, side)) for side in ("backward", "forward"))
    found = upwind(model, X, engine)
    torch.testing.assert_close(found, torch.where(u > 0, back, ahead), rtol=0, atol=1e-12)
    assert (found - torch.where(u > 0, ahead, back)).abs().max() > 1e-4  # the other choice is another number


@pytest.mark.parametrize(("name", "order"), [("CAN", 2), ("FD", 2), ("FD, accuracy 4", 4), ("EFD", 2), ("SFD", 2)])
def test_it_converges_at_its_order(name, order):
    f = SMOOTH["2d-vector"]
    flow = torch.where(X[:, :1] * X[:, 1:] > 0, 1.0, -1.0)
    steps, errors = np.geomspace(0.02, 0.08, 3), []
    for h in steps:
        residual = Residual(lambda u, v, w: tuple(f.upwind("x", by=flow) for f in (u, v, w)), ("x", "y"))
        found = torch.cat(residual(f, X, TURNING[name](h)), dim=1)
        errors.append(rms((found - f.partial(X, 0)).detach()))
    assert np.polyfit(np.log(steps), np.log(errors), 1)[0] == pytest.approx(order, abs=0.3)


@pytest.mark.parametrize("name", EXACT)
def test_an_exact_derivative_does_not_look_anywhere(name):
    model, plain = mlp(2, 1), Residual(lambda u: u.x, ("x", "y"))
    torch.testing.assert_close(upwind(model, X, EXACT[name]), plain(model, X, EXACT[name]), rtol=0, atol=1e-14)


def test_exact_engines_are_asked_once():
    asked = []

    class Asked(dudx.Engine):
        def derivatives(self, model, x, request):
            asked.append(len(request.operators))
            return Taylor().derivatives(model, x, request)

    residual = Residual(lambda u: u.y + u * u.upwind("x", by=u) - 0.1 * u.xx, ("x", "y"))
    residual(mlp(2, 1), X, Asked())
    assert len(asked) == 1


@pytest.mark.parametrize("name", ["CAN", "FD", "SFD"])
def test_parameter_gradients_are_those_of_the_chosen_sides(name):
    model = mlp(2, 1)
    make = TURNING[name]
    found = parameter_gradients(upwind(model, X, make(0.1)).square().mean(), model)
    u = model(X).detach()
    sides = [one_sided(make(0.1), side) for side in ("backward", "forward")]
    if name == "SFD":  # the plain derivative, the backward and the forward one draw steps one after the other
        generator = torch.Generator().manual_seed(0)
        torch.rand(len(X), 1, generator=generator)
        sides = [SFD((0.1 / 1.2, 0.1), side=side, generator=generator) for side in ("backward", "forward")]
    back, ahead = (evaluate(model, X, D(0), engine) for engine in sides)
    torch.testing.assert_close(
        found, parameter_gradients(torch.where(u > 0, back, ahead).square().mean(), model), rtol=0, atol=1e-10
    )


def test_flows_may_be_fields_tensors_and_numbers():
    model = mlp(2, 1)
    back = evaluate(model, X, D(0), FD(0.1, side="backward"))
    ahead = evaluate(model, X, D(0), FD(0.1, side="forward"))
    column = X[:, :1]
    expected = torch.where(column > 0, back, ahead)
    by_input = Residual(lambda u, x: u.upwind("x", by=x), ("x", "y"))(model, X, FD(0.1))
    by_data = Residual(lambda u, c: u.upwind("x", by=c), ("x", "y"), data=("c",))(model, X, FD(0.1), c=column)
    for found in (by_input, by_data, upwind(model, X, FD(0.1), column), upwind(model, X, FD(0.1), column.flatten())):
        torch.testing.assert_close(found, expected)
    torch.testing.assert_close(upwind(model, X, FD(0.1), -2), ahead)
    both = Residual(lambda u, v: (u.upwind("x", by=v), (u + 2 * v).upwind("x", by=1)), ("x", "y"))
    first, mixed = both(mlp(2, 2), X, CAN(0.1))
    assert first.shape == mixed.shape == (40, 1)


def test_a_flow_that_is_no_number_has_no_side():
    flow = torch.ones(len(X), 1, dtype=torch.float64)
    flow[3] = torch.nan
    found = upwind(mlp(2), X, FD(1e-3), by=flow)
    assert found.isnan().flatten().nonzero().flatten().tolist() == [3]


def test_a_compiled_residual_gives_the_same():
    model = mlp(2, 1)
    residual = Residual(lambda u: u * u.upwind("x", by=u), ("x", "y"))
    torch.testing.assert_close(residual.compiled()(model, X, FD(0.1)), residual(model, X, FD(0.1)))


def test_each_samples_gradient():
    model = mlp(2, 1)
    residual = Residual(lambda u: u.y + u * u.upwind("x", by=u), ("x", "y"))
    values, rows = residual.jacobian(model, X, CAN(0.1))
    torch.testing.assert_close(values, residual(model, X, CAN(0.1)).flatten())
    for i in (0, 17):
        own = torch.autograd.grad(residual(model, X, CAN(0.1))[i, 0], list(model.parameters()))
        torch.testing.assert_close(rows[i], torch.cat([g.flatten() for g in own]))


def test_refusals():
    model = mlp(2, 1)
    with pytest.raises(UnsupportedError, match="STDE cannot look one way"):
        upwind(model, X, STDE())
    with pytest.raises(InputError, match="side= or inside="):
        upwind(model, X, FD(0.1, inside=lambda x: x.abs().amax(1) - 16))
    with pytest.raises(InputError, match="Only outputs of the network"):
        Residual(lambda u: u.x.upwind("x", by=u), ("x", "y"))(model, X, FD(0.1))
    with pytest.raises(InputError, match="Only outputs of the network"):
        Residual(lambda u: (u * u).upwind("x", by=u), ("x", "y"))(model, X, FD(0.1))
    with pytest.raises(InputError, match="The flow by="):
        upwind(model, X, FD(0.1), torch.ones(7))
    with pytest.raises(InputError, match="no input named 'z'"):
        Residual(lambda u: u.upwind("z", by=u), ("x", "y"))(model, X, FD(0.1))
