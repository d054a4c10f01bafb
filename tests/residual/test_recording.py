"""A residual records what its function asks for once, and notices when the function asks for something else."""

import copy
import gc
import pickle
import weakref

import pytest
import torch
from helpers import mlp, points
from torch import nn
from traps import layers

import dudx
from dudx import AD, EFD, FD, SFD, D, Laplacian, PerSampleAD, Residual, Taylor, evaluate
from dudx.errors import InputError

ENGINES = [AD(), Taylor(), FD(1e-4), EFD({1: 1e-4, 2: 1e-3}), SFD({1: 1e-4, 2: 1e-3}), PerSampleAD()]


def test_the_function_is_called_once_an_evaluation_after_the_first():
    calls = []

    def equation(u):
        calls.append(u)
        return u.x + u * u.yy

    residual, model, x = Residual(equation, ("x", "y")), mlp(), points(5, 2)
    first = residual(model, x, AD())
    assert len(calls) == 2
    for _ in range(3):
        assert torch.equal(residual(model, x, AD()), first)
    assert len(calls) == 5


def test_another_precision_is_recorded_by_itself():
    residual = Residual(lambda u: u.x if u.dtype == torch.float64 else u.y, ("x", "y"))
    model, x = mlp(), points(5, 2)
    single = copy.deepcopy(model).float()
    for _ in range(2):
        torch.testing.assert_close(residual(model, x, AD()), evaluate(model, x, D(0), AD()))
        torch.testing.assert_close(residual(single, x.float(), AD()), evaluate(single, x.float(), D(1), AD()))


@pytest.mark.parametrize("engine", ENGINES, ids=lambda e: type(e).__name__)
def test_a_number_the_function_reads_may_change(engine):
    class Equation:
        factor = 1.0

        def __call__(self, u):
            return self.factor * u.xx + u.y

    equation = Equation()
    residual, model, x = Residual(equation, ("x", "y")), mlp(), points(5, 2)
    for factor in (1.0, 2.0, 2.0, 3.0, 0.0):
        equation.factor = factor
        expected = evaluate(model, x, factor * D(0, 0) + D(1), AD())
        torch.testing.assert_close(residual(model, x, engine), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("engine", ENGINES, ids=lambda e: type(e).__name__)
def test_a_function_that_asks_for_another_derivative_each_time_is_refused(engine):
    """It would get the numbers of the one it asked for first."""
    calls = []

    def equation(u):
        calls.append(u)
        return u.x if len(calls) % 2 else u.y

    with pytest.raises(InputError, match="must not branch"):
        Residual(equation, ("x", "y"))(mlp(), points(5, 2), engine)


def test_a_function_that_chooses_at_random_is_refused_or_right():
    """Found out on whichever call the choice differs from the recorded one; a call that returns has the right value."""
    torch.manual_seed(0)
    chosen = []

    def equation(u):
        chosen.append(bool(torch.rand(()) < 0.5))
        return u.x if chosen[-1] else u.y

    residual, model, x = Residual(equation, ("x", "y")), mlp(), points(5, 2)
    refused = 0
    for _ in range(30):
        try:
            value = residual(model, x, AD())
        except InputError:
            refused += 1
        else:
            assert torch.equal(value, evaluate(model, x, D(0) if chosen[-1] else D(1), AD()))
    assert 0 < refused < 30


def test_directions_are_those_of_the_call():
    residual, model = Residual(lambda u, n: u.along(n) + u, ("x", "y"), data=("n",)), mlp()
    x = points(5, 2)
    for seed in range(3):
        n = torch.randn(5, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
        value, dx, dy = evaluate(model, x, [D(), D(0), D(1)], AD())
        torch.testing.assert_close(residual(model, x, AD(), n=n), value + n[:, :1] * dx + n[:, 1:] * dy)


def test_directions_that_were_one_tensor_may_be_two():
    residual = Residual(lambda u, a, b: u.along(a) + 2 * u.along(b), ("x", "y"), data=("a", "b"))
    model, x = mlp(), points(5, 2)
    first, second = torch.ones_like(x), torch.tensor([1.0, 0.0], dtype=torch.float64).expand(5, 2).contiguous()
    dx, dy = evaluate(model, x, [D(0), D(1)], AD())
    torch.testing.assert_close(residual(model, x, AD(), a=first, b=first), 3 * (dx + dy))
    torch.testing.assert_close(residual(model, x, AD(), a=first, b=second), dx + dy + 2 * dx)
    torch.testing.assert_close(residual(model, x, AD(), a=second, b=first), dx + 2 * (dx + dy))


def test_directions_computed_by_the_function_are_computed_anew_each_time():
    def equation(u, n):
        return u.along(n / n.norm(dim=1, keepdim=True))

    residual, model, x = Residual(equation, ("x", "y"), data=("n",)), mlp(), points(5, 2)
    for scale in (1.0, 3.0):
        n = scale * torch.tensor([3.0, 4.0], dtype=torch.float64).expand(5, 2) + x.detach()
        unit = n / n.norm(dim=1, keepdim=True)
        dx, dy = evaluate(model, x, [D(0), D(1)], AD())
        torch.testing.assert_close(residual(model, x, Taylor(), n=n), unit[:, :1] * dx + unit[:, 1:] * dy)


def test_directions_that_differ_each_time_are_refused():
    residual = Residual(lambda u, x: u.along(torch.randn_like(x).expand(-1, 2).contiguous()), ("x", "y"))
    with pytest.raises(InputError, match="draw random numbers"):
        residual(mlp(), points(5, 2), AD())


def test_what_is_remembered_keeps_no_directions_alive():
    residual = Residual(lambda u, n: u.xx + u.along(n), ("x", "y"), data=("n",))
    model, x = mlp(), points(5, 2)
    residual(model, x, AD(), n=torch.ones_like(x))
    later = torch.ones_like(x)
    residual(model, x, AD(), n=later)
    gone = weakref.ref(later)
    del later
    gc.collect()
    assert gone() is None


def test_one_operator_gives_one_tensor_and_a_list_a_tuple():
    model, x = mlp(), points(5, 2)
    alone = evaluate(model, x, Laplacian(), AD())
    (listed,) = evaluate(model, x, [Laplacian()], AD())
    assert isinstance(alone, torch.Tensor)
    assert torch.equal(alone, listed)


def heat(u):
    return u.t - u.xx


def system(u, v):
    return u.x + v.y, u.y - v.x


@pytest.mark.parametrize("compile", [False, True])
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda r: pickle.loads(pickle.dumps(r))], ids=["copy", "pickle"])
def test_residuals_can_be_copied(copied, compile):
    residual, model, x = Residual(heat, ("x", "t"), compile=compile), mlp(), points(5, 2)
    if not compile:
        residual(model, x, AD())
    again = copied(residual)
    assert repr(again) == repr(residual)
    assert again._compiled is not residual._compiled or not compile
    torch.testing.assert_close(again(model, x, AD()), evaluate(model, x, D(1) - D(0, 0), AD()))


def test_residuals_can_be_read():
    assert repr(Residual(heat, ("x", "t"))) == "Residual(heat(u), inputs=('x', 't'))"
    assert repr(Residual(system, ("x", "y"), compile=True)) == "Residual(system(u, v), inputs=('x', 'y'), compile=True)"


@pytest.mark.parametrize("engine", ENGINES, ids=lambda e: type(e).__name__)
def test_engines_are_values(engine):
    again = pickle.loads(pickle.dumps(engine))
    assert again == engine == copy.deepcopy(engine)
    assert hash(again) == hash(engine)
    assert repr(again) == repr(engine)
    with pytest.raises(AttributeError):
        engine.coupled = "ignore"
    with pytest.raises((TypeError, AttributeError)):
        engine.calibrations[1] = None


def test_the_steps_of_an_engine_cannot_be_changed_behind_it():
    steps = {1: 1e-4, 2: 1e-3}
    engine = EFD(steps)
    steps[1] = 1.0
    assert engine.steps == {1: 1e-4, 2: 1e-3}
    with pytest.raises(TypeError):
        engine.steps[1] = 1.0


def test_a_residual_that_asks_for_something_else_when_replayed():
    a, _, c = layers()
    model, calls = nn.Sequential(a, nn.Tanh(), c), []

    def alternating(u):
        calls.append(1)
        return u.x if len(calls) % 2 else u.xx

    with pytest.raises(dudx.errors.InputError, match="other derivatives"):
        dudx.Residual(alternating, ("x", "y"))(model, points(6, 2), dudx.AD())
