from __future__ import annotations

import copy
import pickle
import warnings
from functools import partial

import pytest
import torch
from torch import nn

import dudx
from dudx import Residual
from dudx.errors import CompilationWarning
from dudx.network import compiled_graph as compilation
from dudx.network.batch_bound import unbound
from dudx.network.compiled_graph import CompiledGraphs
from dudx.network.compiled_plan import graphs_for

ENGINES = {
    "Taylor": dudx.Taylor(),
    "FD": dudx.FD(1e-2),
    "EFD": dudx.EFD({1: 1e-2, 2: 2e-2}),
    "SFD": dudx.SFD((1e-2, 1e-2)),  # both ends equal, so that the random step is the same every time
    "AD": dudx.AD(),
}


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1)).double()


def burgers(u):
    return u.t + u * u.x - 0.1 * u.xx


@pytest.mark.parametrize("name", ENGINES)
def test_compiled_and_eager_agree_in_value_and_gradient(name, request):
    if name in ("EFD", "SFD"):  # of the same operations as FD, of which C++ is made once
        request.getfixturevalue("only_traced")
    x, n = torch.rand(2, 16, 2, dtype=torch.float64)
    gradients = []
    for compile in (False, True):
        model = network()
        equation = Residual(lambda u, n: burgers(u) + u.along(n) ** 2, ("x", "t"), data=("n",), compile=compile)
        loss = equation.loss(model, x, ENGINES[name], n=n)
        loss.backward()
        gradients.append([loss.detach(), *(p.grad for p in model.parameters())])
        assert (equation.compile_seconds > 0) == (compile and name != "AD")  # AD goes on as it is
    for eager, compiled in zip(*gradients, strict=True):
        assert torch.allclose(eager, compiled, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("name", ["Taylor", "FD"])
def test_derivatives_of_derivatives_compile(name, only_traced):
    engine = {"Taylor": dudx.Taylor(), "FD": dudx.FD(0.1)}[name]
    model, x = network(), torch.rand(16, 2, dtype=torch.float64)
    eager, compiled = (
        Residual(lambda u: u.laplacian().laplacian() + u.x.xt - (2 * u).d("t").xx, ("x", "t"), compile=compile)
        for compile in (False, True)
    )
    expected = eager.loss(model, x, engine)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)  # among them that it goes on without compilation
        assert torch.allclose(compiled.loss(model, x, engine), expected, rtol=1e-8)


@pytest.mark.usefixtures("only_traced")
def test_another_step_is_not_another_graph():
    model, x = network(), torch.rand(16, 2, dtype=torch.float64)
    residual = Residual(burgers, ("x", "t"), compile=True)
    residual.loss(model, x, dudx.FD(1e-2))
    spent = residual.compile_seconds
    compiled, eager = (r.loss(model, x, dudx.FD(3e-2)) for r in (residual, Residual(burgers, ("x", "t"))))
    assert residual.compile_seconds == spent
    assert torch.allclose(compiled, eager, rtol=1e-9)


def test_the_names_of_a_networks_parts_do_not_matter():
    model = nn.ModuleDict({"bind": nn.Linear(2, 1), "not_compiled": nn.Linear(2, 1)})
    with warnings.catch_warnings():
        warnings.simplefilter("error", CompilationWarning)
        assert CompiledGraphs().can_compile(model)
    assert unbound(model)[:2] == (model, ())


def test_a_compiler_that_fails_without_a_word_is_gone_without(monkeypatch):
    class SilentError(Exception):
        __module__ = "torch._dynamo.silent"

    def compile(function, **settings):
        def graph(*arguments):
            raise SilentError

        return graph

    monkeypatch.setattr(torch, "compile", compile)
    with pytest.warns(CompilationWarning, match="SilentError"):
        assert CompiledGraphs()("key", lambda model, x: x, network(), 3) == 3


@pytest.mark.usefixtures("only_traced")
def test_numbers_that_the_residual_reads_may_change():
    model, x = network(), torch.rand(16, 2, dtype=torch.float64)
    read = {"in a product": 1.0, "beside an operator": 1.0}

    def equation(u):
        return read["beside an operator"] * u.xx + read["in a product"] * u * u.x

    eager, compiled = Residual(equation, ("x", "t")), Residual(equation, ("x", "t"), compile=True)
    for changed in (None, *read):
        read |= {changed: 3.0} if changed else {}
        expected = eager.loss(model, x, dudx.Taylor())
        assert torch.allclose(compiled.loss(model, x, dudx.Taylor()), expected, rtol=1e-12), changed


@pytest.mark.usefixtures("only_traced")
def test_data_may_come_in_any_order():
    model = network()
    x, a, b = torch.rand(3, 16, 2, dtype=torch.float64)
    equation = Residual(lambda u, a, b: u.xx + a[:, :1] - 2 * b[:, :1], ("x", "t"), data=("a", "b"), compile=True)
    first = equation.loss(model, x, dudx.Taylor(), a=a, b=b)
    assert torch.equal(equation.loss(model, x, dudx.Taylor(), b=b, a=a), first)


@pytest.mark.usefixtures("only_traced")
def test_a_call_in_many_variables_checks_no_plan_number_by_number(monkeypatch):
    checked = []

    def counted(guards):
        chosen = original(guards)
        checked.append([guard.name for guard, keep in zip(guards, chosen, strict=True) if keep])
        return chosen

    original = compilation._guards_of_arguments
    monkeypatch.setattr(compilation, "_guards_of_arguments", counted)
    names = tuple(f"x{i}" for i in range(30))
    equation = Residual(lambda u: u.laplacian(), names, compile=True)
    equation.loss(nn.Linear(30, 1), torch.rand(4, 30), dudx.Taylor())
    (kept,) = checked
    assert any(name.startswith("arguments[0]") for name in kept)  # the network
    assert len(kept) < 150  # with the plan there are more than 30 for each of its parts


def test_without_a_compiler_there_is_one_warning_and_the_work_goes_on(monkeypatch):
    def no_compiler(*args, **kwargs):
        def fail(*args):
            from torch._inductor.exc import InvalidCxxCompiler

            raise InvalidCxxCompiler

        return fail

    monkeypatch.setattr(torch, "compile", no_compiler)
    model, x = network(), torch.rand(16, 2, dtype=torch.float64)
    residual = Residual(burgers, ("x", "t"), compile=True)
    with pytest.warns(CompilationWarning, match="going on without it"):
        first = residual.loss(model, x, dudx.Taylor())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(residual.loss(model, x, dudx.Taylor()), first)


def test_a_mistake_in_the_residual_is_not_blamed_on_the_compiler():
    residual = Residual(lambda u: u.xx, ("x", "t"), compile=True)
    two = nn.Sequential(nn.Linear(2, 2)).double()
    with pytest.raises(dudx.errors.InputError, match="names 1 output"):
        residual(two, torch.rand(5, 2, dtype=torch.float64), dudx.Taylor())


def test_a_product_of_square_factors_keeps_its_order(monkeypatch):
    """As many points as features, and an operator whose order torch.compile turns round: it must not go unnoticed."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    weight = nn.Parameter(torch.tensor([[1.0, 2.0], [3.0, -4.0]], dtype=torch.float64))
    x = torch.rand(2, 2, dtype=torch.float64)
    products = {
        "x @ weight": lambda x: x @ weight,
        "matmul": lambda x: torch.matmul(x, weight),
        "weight @ x": lambda x: (weight @ x.T).T,
    }
    for word, product in products.items():
        compiled, eager = (Residual(burgers, ("x", "t"), compile=c) for c in (True, False))
        with warnings.catch_warnings():
            # The last one may also run uncompiled, with a warning.
            warnings.simplefilter("ignore" if word == "weight @ x" else "error", CompilationWarning)
            ours, exact = (r(lambda x, p=product: torch.tanh(p(x))[:, :1], x, dudx.Taylor()) for r in (compiled, eager))
        assert torch.allclose(ours, exact)


@pytest.mark.filterwarnings("error::dudx.errors.CompilationWarning")
def test_a_product_with_other_than_square_factors_is_compiled(monkeypatch):
    """Products with rectangular weights occur in random Fourier features."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    weight = torch.rand(2, 5, dtype=torch.float64)
    x = torch.rand(7, 2, dtype=torch.float64)
    model = lambda x: torch.sin(x @ weight).mean(1, keepdim=True)  # noqa: E731
    compiled, eager = (Residual(burgers, ("x", "t"), compile=c) for c in (True, False))
    assert torch.allclose(compiled(model, x, dudx.Taylor()), eager(model, x, dudx.Taylor()))


T = torch.tensor([2.0, 3.0], dtype=torch.float64)
OPERATORS = {
    "x + t": lambda x: x + T,
    "t + x": lambda x: T + x,
    "x - t": lambda x: x - T,
    "t - x": lambda x: T - x,
    "2 - x": lambda x: 2 - x,
    "x * t": lambda x: x * T,
    "t * x": lambda x: T * x,
    "x / t": lambda x: x / T,
    "t / x": lambda x: T / (1 + x),
    "2 / x": lambda x: 2 / (1 + x),
    "x ** 2": lambda x: x**2,
    "x ** t": lambda x: (1 + x) ** T,
    "t ** x": lambda x: T**x,
    "2 ** x": lambda x: 2**x,
    "x - x": lambda x: torch.sin(x) - x * x,
    "x / x": lambda x: torch.sin(x) / (1 + x * x),
    "x > t": lambda x: torch.where(x > T - 2, x, x * x),
}


def test_operators_between_jets_and_tensors_compile(monkeypatch):
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    x, request = torch.rand(7, 2, dtype=torch.float64), [dudx.D(1), dudx.D(0, 0)]

    def model(x):  # an output per operator
        return torch.stack([torch.tanh(0.3 * function(x)).sum(1) for function in OPERATORS.values()], dim=1)

    with warnings.catch_warnings():
        warnings.simplefilter("error", CompilationWarning)
        ours = dudx.evaluate(model, x, request, dudx.Taylor(), compile=True)
    for found, exact in zip(ours, dudx.evaluate(model, x, request, dudx.AD()), strict=True):
        for number, name in enumerate(OPERATORS):
            assert torch.allclose(found[:, number], exact[:, number]), name


def test_many_keys_of_one_function_have_a_graph_each(monkeypatch):
    """Torch takes eight graphs for one function, and tells them apart by what is checked, in which the plan is not."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    compiled, model = CompiledGraphs(), network()
    with warnings.catch_warnings():
        warnings.simplefilter("error", CompilationWarning)
        for _ in range(2):
            for factor in range(12):
                assert compiled(factor, lambda model, x, factor=factor: factor * x, model, torch.ones(())) == factor


@pytest.mark.usefixtures("only_traced")
def test_a_copy_makes_graphs_of_its_own():
    residual = Residual(burgers, ("x", "t"), compile=True)
    residual.loss(network(), torch.rand(16, 2, dtype=torch.float64), dudx.Taylor())
    for copied in (copy.deepcopy(residual), pickle.loads(pickle.dumps(residual))):
        assert copied.compile_seconds == 0 < residual.compile_seconds
        model, x = network(), torch.rand(16, 2, dtype=torch.float64)
        assert torch.equal(copied.loss(model, x, dudx.Taylor()), residual.loss(model, x, dudx.Taylor()))
        assert copied.compile_seconds > 0


def ensemble_of(count=3):
    torch.manual_seed(1)
    nets = [nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1)).double() for _ in range(count)]
    return nets, dudx.ensemble(nets)


@pytest.mark.filterwarnings("error::dudx.errors.CompilationWarning")
@pytest.mark.parametrize("name", ["Taylor", "FD"])
def test_an_ensemble_compiles_to_the_numbers_of_its_members(name, request):
    if name == "FD":  # the products and sums of an ensemble are those of Taylor
        request.getfixturevalue("only_traced")
    nets, several = ensemble_of()
    x = torch.rand(16, 2, dtype=torch.float64)
    compiled, eager = (Residual(burgers, ("x", "t"), compile=c) for c in (True, False))
    losses = compiled.loss(several, x, ENGINES[name])
    assert compiled.compile_seconds > 0
    singles = torch.stack([eager.loss(net, x, ENGINES[name]) for net in nets])
    assert torch.allclose(losses, singles, rtol=1e-8)
    losses.sum().backward()
    singles.sum().backward()
    for stacked, of_nets in zip(several.stacked, zip(*(net.parameters() for net in nets), strict=True), strict=True):
        if of_nets[0].grad is not None:
            assert torch.allclose(stacked.grad, torch.stack([p.grad for p in of_nets]), rtol=1e-6, atol=1e-9)


def test_a_call_and_a_loss_share_one_graph(monkeypatch):
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    model, x = network(), torch.rand(16, 2, dtype=torch.float64)
    compiled, eager = (Residual(burgers, ("x", "t"), compile=c) for c in (True, False))
    values, loss = compiled(model, x, dudx.Taylor()), compiled.loss(model, x, dudx.Taylor())
    assert compiled._compiled.graph_count == 1
    assert torch.allclose(values, eager(model, x, dudx.Taylor()))
    assert torch.allclose(loss, values.square().mean())


@pytest.mark.parametrize("name", ENGINES)
def test_evaluate_compiles(name, monkeypatch):
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    nets, several = ensemble_of()
    x = torch.rand(16, 2, dtype=torch.float64)
    operators = [dudx.D(), dudx.D(0, 1), dudx.Laplacian()]
    for model in (nets[0], several, lambda x: torch.sin(x).sum(1, keepdim=True)):
        ours, exact = (dudx.evaluate(model, x, operators, ENGINES[name], compile=c) for c in (True, False))
        for a, b in zip(ours, exact, strict=True):
            assert torch.allclose(a, b, atol=1e-9)
    assert dudx.evaluate(nets[0], x, dudx.D(0), ENGINES[name], compile=True).shape == (16, 1)
    made = graphs_for(nets[0]).graph_count
    dudx.evaluate(nets[0], x, dudx.D(0), ENGINES[name], compile=True)
    assert graphs_for(nets[0]).graph_count == made == (0 if name == "AD" else 2)


@pytest.mark.filterwarnings("error::dudx.errors.CompilationWarning")
def test_functions_of_fields_are_compiled(monkeypatch):
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    model, x = network(), torch.rand(16, 2, dtype=torch.float64)

    def source(u, x, t):
        return u.xx + torch.sin(x) * torch.exp(-t) + torch.where(u > 0, u.x, torch.zeros_like(x)) + torch.tanh(u)

    compiled, eager = (Residual(source, ("x", "t"), compile=c) for c in (True, False))
    assert torch.allclose(compiled(model, x, dudx.Taylor()), eager(model, x, dudx.Taylor()))
    assert compiled._compiled.graph_count == 1


@pytest.mark.filterwarnings("ignore::dudx.errors.CompilationWarning")
def test_a_compilation_that_fails_leaves_forward_mode_as_it_was():
    """Torch cannot compile this derivative, and would leave a level open in which every later one fails."""
    model, x = network(), torch.rand(16, 2, dtype=torch.float64)
    found = []
    for compile in (True, False):
        residual = Residual(lambda u, points: (points.T[0].unsqueeze(1) * u.x).x, ("x", "t"), compile=compile)
        found.append(residual(model, x, dudx.Taylor()))
    assert torch.allclose(*found)
    torch.func.jvp(torch.sin, (x,), (x,))
