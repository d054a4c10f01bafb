"""Engines made of engines."""

import pickle

import pytest
import torch
from helpers import SMOOTH, Counted, OnceDifferentiable, mlp, parameter_gradients, points
from operator_cases import vectors
from torch import nn

from dudx import (
    AD,
    FD,
    SFD,
    Along,
    Auto,
    ByAxis,
    CoupledModelError,
    D,
    InputError,
    Laplacian,
    PerSampleAD,
    Residual,
    Taylor,
    Where,
    evaluate,
    isolate,
)  # fmt: skip
from dudx.errors import UnsupportedError
from dudx.lab.run.engine_table import step_text


def left(x):
    return x[:, 0] < 0


REQUEST = [D(), D(0), Laplacian(), D(0, 1) - 2 * D(1)]


# -- Where -----------------------------------------------------------------------------------------------------------


def test_where_takes_each_engine_where_it_is_asked_for():
    f, x = SMOOTH["2d-vector"], points(20, 2)
    v = vectors(x)
    request = [*REQUEST, Along(v, 2)]
    coarse, exact = evaluate(f, x, request, FD(0.3)), evaluate(f, x, request, AD())
    for found, a, b in zip(evaluate(f, x, request, Where(left, AD(), FD(0.3))), exact, coarse, strict=True):
        torch.testing.assert_close(found, torch.where(left(x).unsqueeze(1), a, b), rtol=1e-12, atol=1e-12)


def test_where_sends_no_point_to_both_engines_and_asks_one_alone_where_it_can():
    x = points(20, 2)
    model = Counted(mlp())
    engine = Where(left, FD(0.1), FD(0.1, accuracy=4))
    evaluate(model, x, D(0), engine)
    inside = int(left(x).sum())
    assert model.rows[-2:] == [2 * inside, 4 * (20 - inside)]
    evaluate(model, x[left(x)], D(0), engine)
    assert model.rows[-1] == 2 * inside


def test_where_keeps_coupled_batches_whole():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.BatchNorm1d(8), nn.Linear(8, 1)).double()
    x = points(10, 2)
    exact = evaluate(model, x, REQUEST, PerSampleAD())
    with pytest.raises(CoupledModelError):
        evaluate(model, x, REQUEST, Where(left, PerSampleAD(), AD()))
    for network, engine in (
        (model, Where(left, PerSampleAD(), PerSampleAD(method="loop"))),
        (isolate(model, x, update_statistics=False), Where(left, AD(), Taylor())),
    ):
        torch.testing.assert_close(list(evaluate(network, x, REQUEST, engine)), list(exact), rtol=1e-9, atol=1e-9)


# -- ByAxis ----------------------------------------------------------------------------------------------------------


def test_by_axis_takes_each_engine_along_its_axes():
    f, x = SMOOTH["3d-vector"], points(15, 3)
    v = vectors(x)
    engine = ByAxis({"x y": FD(0.3), "t": AD()}, inputs=("x", "y", "t"), other=AD())
    coarse = FD(0.3)
    pairs = [
        (D(0, 1), D(0, 1), coarse),
        (D(2, 2), D(2, 2), AD()),
        (D(0, 2), D(0, 2), AD()),
        (Along(v), Along(v), AD()),
        (D(), D(), AD()),
        (0 * D(0), 0 * D(0), AD()),
    ]
    found = evaluate(f, x, [pair[0] for pair in pairs] + [D(2) - D(0, 0) + 3 * D()], engine)
    for value, (_, operator, single) in zip(found, pairs, strict=False):
        torch.testing.assert_close(value, evaluate(f, x, operator, single), rtol=1e-12, atol=1e-12)
    total = evaluate(f, x, D(2) + 3 * D(), AD()) - evaluate(f, x, D(0, 0), coarse)
    torch.testing.assert_close(found[-1], total, rtol=1e-12, atol=1e-12)


def test_by_axis_makes_one_pass_for_each_engine_and_none_for_values():
    model, x = Counted(mlp()), points(20, 2)
    engine = ByAxis({0: FD(0.1), 1: AD()})
    residual = Residual(lambda u: u.t + u * u.x - 0.1 * u.xx, ("x", "t"))
    residual(model, x, engine)
    model.rows.clear()
    residual(model, x, engine)  # met before: no probe
    assert model.rows == [3 * 20, 20] or model.rows[-2:] == [3 * 20, 20]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ByAxis({"x": AD()}), "inputs="),
        (lambda: ByAxis({(0, 1): AD(), 1: FD()}), "each axis in one"),
        (lambda: ByAxis({-1: AD()}), "numbers of columns"),
        (lambda: ByAxis({0: "ad"}), "made of engines"),
        (lambda: Where(0, AD(), FD()), "function of the points"),
        (lambda: Where(left, AD(), FD), "made of engines"),
        (lambda: Auto(()), "among engines"),
        (lambda: Auto((AD(coupled="ignore"),)), "not one of them"),
        (lambda: evaluate(torch.sin, points(3, 2), D(0, 1), ByAxis({0: AD(), 1: FD(0.1)})), "other=dudx.AD"),
        (lambda: evaluate(torch.sin, points(3, 2), D(0), Where(lambda x: x[:, 0], AD(), FD(0.1))), "boolean"),
    ],
)
def test_what_cannot_be_is_one_sentence(make, message):
    with pytest.raises(InputError, match=message):
        make()


# -- what all have in common -----------------------------------------------------------------------------------------

COMBINED = {
    "Where": Where(left, AD(), FD(2e-2, 6)),
    "ByAxis": ByAxis({0: FD(2e-2, 6), 1: Taylor()}, other=AD()),
    "Auto": Auto(),
}


@pytest.mark.parametrize("engine", COMBINED.values(), ids=COMBINED)
def test_parameter_gradients_agree(engine):
    model, x = mlp(outputs=2), points(12, 2)
    residual = Residual(lambda u, p: (u.t - u * p.xx, p.d("x", "t") + u.laplacian()), ("x", "t"))
    ours, exact = (
        parameter_gradients(sum(r.square().mean() for r in residual(model, x, e)), model) for e in (engine, AD())
    )
    assert (ours - exact).norm() < 1e-6 * exact.norm()


def test_steps_are_set_kept_and_pickled():
    model, x = mlp(), points(50, 2)
    for engine in (Where(left, AD(), FD()), ByAxis({0: FD(), 1: AD()})):
        ready = engine.calibrated(model, x, [D(0), D(1)])
        assert step_text(ready)
        assert step_text(engine.with_state(ready.state)) == step_text(ready)
        assert pickle.loads(pickle.dumps(ready)) == ready
        assert torch.isfinite(evaluate(model, x, D(0), engine.with_state(ready.state))).all()
        with pytest.raises(InputError, match="given another"):
            engine.with_state({"steps": 0.1})


def test_slices_are_sized_by_what_the_parts_make_of_a_point():
    x = points(5, 2)
    assert Where(left, FD(0.1), AD()).rows(x, [Laplacian()]).at_once == 5
    assert ByAxis({0: FD(0.1), 1: SFD((0.1, 0.2))}).rows(x, [Laplacian()]).at_once == 3


# -- Auto ------------------------------------------------------------------------------------------------------------


class Slow(AD):
    """Automatic differentiation that takes its time."""

    def derivatives(self, model, x, request):
        for _ in range(20):
            values = super().derivatives(model, x, request)
        return values


@pytest.mark.parametrize("order", [(Slow(), AD()), (AD(), Slow())], ids=["slow first", "slow last"])
def test_auto_takes_the_faster_one_and_says_so(order):
    model, x = mlp(), points(64, 2)
    engine = Auto(order).calibrated(model, x, [Laplacian()])
    assert step_text(engine) == "AD"
    assert engine.reason.startswith("AD takes")
    assert "Slow takes" in engine.reason
    again = Auto(order).with_state(engine.state)
    assert step_text(again) == "AD"
    assert pickle.loads(pickle.dumps(again)) == again


def test_auto_times_once():
    calls = []

    class Noted(AD):
        def derivatives(self, model, x, request):
            calls.append(len(x))
            return super().derivatives(model, x, request)

    model, x, engine = mlp(), points(9, 2), Auto((Noted(), Slow()))
    for _ in range(3):
        torch.testing.assert_close(evaluate(model, x, D(0), engine), evaluate(model, x, D(0), AD()))
    assert len(calls) == 2 + 3  # timed after one to warm up, then used


def test_auto_takes_what_can_do_it_and_leaves_no_trace():
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(1, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)).double()
    model[1].eval()
    x, state = points(8, 1), torch.get_rng_state()

    class Refusing(Taylor):
        def prepared(self, *given, **options):
            raise UnsupportedError("not this network")

    engine = Auto((Refusing(), AD())).calibrated(model, x, [D(0)])
    assert step_text(engine) == "AD"
    assert torch.equal(torch.get_rng_state(), state)
    torch.testing.assert_close(evaluate(model, x, D(0), engine), evaluate(model, x, D(0), AD()))
    with pytest.raises(UnsupportedError, match="once_differentiable"):
        evaluate(OnceDifferentiable.apply, x, D(0, 0), Auto((AD(),)))
