"""Engines inside of torch.func's transforms, and ensembles: the numbers of single networks."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from helpers import mlp, points
from torch import Tensor, nn
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, stack_module_state, vmap

import dudx
from dudx import AD, FD, D, Residual, Taylor, evaluate
from dudx.errors import UnsupportedError
from dudx.lab.run.networks.separable import Separable

ENGINES = {"Taylor": Taylor(), "AD": AD(), "FD": FD(1e-3)}
BURGERS = Residual(lambda u: u.t + u * u.x - 0.01 * u.xx, inputs=("x", "t"))


def networks(count: int = 3) -> list[nn.Module]:
    return [mlp(2, 1, width=8, seed=seed) for seed in range(count)]


def residual_of(kind: nn.Module, parameters: dict[str, Tensor], x: Tensor, engine: Any) -> Tensor:
    return BURGERS(lambda x: functional_call(kind, parameters, (x,)), x, engine)


@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
def test_engines_work_inside_of_transforms(engine: Any) -> None:
    nets, x = networks(), points(5, 2)
    stacked, _ = stack_module_state(nets)
    exact = torch.stack([BURGERS(net, x, engine) for net in nets])
    assert torch.allclose(vmap(lambda p: residual_of(nets[0], p, x, engine))(stacked), exact, atol=1e-9)
    own = dict(nets[0].named_parameters())
    slope = grad(lambda p: residual_of(nets[0], p, x, engine).square().mean())(own)
    expected = torch.autograd.grad(
        exact[0].square().mean(), list(own.values()), materialize_grads=True, retain_graph=True
    )
    for a, b in zip(slope.values(), expected, strict=True):
        assert torch.allclose(a, b, atol=1e-9)
    rows = jacrev(lambda p: residual_of(nets[0], p, x, engine).flatten())(own)
    first = torch.autograd.grad(exact[0, 0, 0], list(own.values()), materialize_grads=True)
    for a, b in zip(rows.values(), first, strict=True):
        assert torch.allclose(a[0], b, atol=1e-9)


@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
def test_each_point_may_be_mapped_by_itself(engine: Any) -> None:
    net, x = mlp(2, 2, width=8), points(5, 2)
    operators = [D(), D(0), D(0, 1)]
    found = vmap(lambda row: evaluate(net, row.unsqueeze(0), operators, engine))(x)
    for ours, exact in zip(found, evaluate(net, x, operators, engine), strict=True):
        assert torch.allclose(ours.squeeze(1), exact, atol=1e-9)


@pytest.mark.parametrize("engine", [*ENGINES.values(), dudx.EFD({2: 2e-3}), dudx.STDE(4)], ids=repr)
def test_transforms_in_transforms_leave_nothing_behind(engine: Any) -> None:
    """A constant that is made in there and kept would end every later call in torch's internal error."""
    net, x = mlp(2, 1, width=8), points(3, 2)
    # New to all that is kept: no other test asks for this.
    asked = 1.0625 * D(0, 0) + 0.9375 * D(1, 1)

    def total(x: Tensor) -> Tensor:
        return evaluate(net, x, asked, engine).sum()

    exact = hessian(lambda x: evaluate(net, x, asked, AD()).sum())(x)
    for transform in (hessian, lambda f: jacrev(jacrev(f)), lambda f: jacfwd(jacfwd(f)), hessian):
        assert torch.allclose(transform(total)(x), exact, atol=1e-4)
    assert torch.allclose(total(x), evaluate(net, x, asked, AD()).sum(), atol=1e-4)


def test_an_engine_that_cannot_says_so() -> None:
    nets, x = networks(1), points(5, 2)
    with pytest.raises(UnsupportedError, match=r"torch\.func.*dudx\.AD\(\)"):
        grad(lambda p: residual_of(nets[0], p, x, dudx.PerSampleAD()).mean())(dict(nets[0].named_parameters()))


@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
def test_an_ensemble_has_the_numbers_of_its_members(engine: Any) -> None:
    nets, x = networks(), points(6, 2)
    several = dudx.ensemble(nets)
    assert torch.allclose(several(x), torch.stack([net(x) for net in nets]))
    assert torch.allclose(
        BURGERS(several, x, engine), torch.stack([BURGERS(net, x, engine) for net in nets]), atol=1e-9
    )
    (second,) = evaluate(several, x, [D(0, 0)], engine)
    assert torch.allclose(second, torch.stack([evaluate(net, x, D(0, 0), engine) for net in nets]), atol=1e-9)
    losses = BURGERS.loss(several, x, engine)
    exact = torch.stack([BURGERS.loss(net, x, engine) for net in nets])
    assert torch.allclose(losses, exact, atol=1e-9)
    losses.sum().backward()
    exact.sum().backward()
    for stacked, singles in zip(several.stacked, zip(*(net.parameters() for net in nets), strict=True), strict=True):
        if singles[0].grad is not None:
            assert torch.allclose(stacked.grad, torch.stack([single.grad for single in singles]), atol=1e-9)


def test_an_ensemble_trains_as_its_members_do() -> None:
    nets, x = networks(), points(16, 2)
    several = dudx.ensemble(nets)
    together = torch.optim.Adam(several.parameters(), 1e-2)
    apart = torch.optim.Adam([p for net in nets for p in net.parameters()], 1e-2)
    for _ in range(5):
        for optimizer, loss in (
            (together, lambda: BURGERS.loss(several, x, Taylor()).sum()),
            (apart, lambda: sum(BURGERS.loss(net, x, Taylor()) for net in nets)),
        ):
            optimizer.zero_grad()
            loss().backward()
            optimizer.step()
    for net, member in zip(nets, several.members(), strict=True):
        assert torch.allclose(net(x), member(x), atol=1e-10)


def test_members_that_differ_or_mix_samples_are_refused() -> None:
    with pytest.raises(dudx.errors.InputError, match="same layers"):
        dudx.ensemble([mlp(2, 1, width=8), mlp(2, 1, width=9)])
    with pytest.raises(dudx.errors.InputError, match="list of networks"):
        dudx.ensemble([])
    mixing = dudx.ensemble(
        [nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 1)).double() for _ in range(2)]
    )
    for call in (BURGERS, BURGERS.loss):
        with pytest.raises(dudx.CoupledModelError):
            call(mixing, points(6, 2), Taylor())


# -- data and checks -------------------------------------------------------------------------------------------------


def slope(u: Any, n: Any, g: Any) -> Any:
    return u.along(n) + u.xx - g * u.t


def unit_slope(u: Any, n: Any, g: Any) -> Any:
    return u.along(n / n.norm(dim=1, keepdim=True)) + u.xx - g * u.t


@pytest.mark.usefixtures("only_traced")  # the C++ of ensembles is compared in tests/residual/test_compilation.py
@pytest.mark.parametrize("compile", [False, True])
@pytest.mark.parametrize("name", ["Taylor", "AD", "FD", "EFD", "SFD"])
@pytest.mark.parametrize("function", [slope, unit_slope])
def test_members_share_data_and_directions(name: str, compile: bool, function: Any) -> None:
    nets, x, data = networks(), points(6, 2), {"n": points(6, 2, seed=1) - 0.3, "g": points(6, 1, seed=2)}
    steps = {"EFD": dudx.EFD({1: 1e-3, 2: 1e-2}), "SFD": dudx.SFD(steps=(1e-3, 1e-3))}
    engine = steps[name] if name in steps else ENGINES[name]
    several = dudx.ensemble(nets)
    together = Residual(function, ("x", "t"), data=("n", "g"), compile=compile)
    alone = Residual(function, ("x", "t"), data=("n", "g"))
    losses = together.loss(several, x, engine, **data)
    exact = torch.stack([alone.loss(net, x, engine, **data) for net in nets])
    # Differences divide rounding by steps, and by their squares.
    assert torch.allclose(losses, exact, rtol=1e-12 if name in ("Taylor", "AD") else 1e-8)
    losses.sum().backward()
    exact.sum().backward()
    for stacked, of_nets in zip(several.stacked, zip(*(net.parameters() for net in nets), strict=True), strict=True):
        if of_nets[0].grad is not None:
            assert torch.allclose(stacked.grad, torch.stack([p.grad for p in of_nets]), atol=1e-7)
    values = together(several, x, engine, **data)
    each = torch.stack([alone(net, x, engine, **data) for net in nets])
    assert torch.allclose(values, each, atol=1e-12 if name in ("Taylor", "AD") else 1e-7)


def test_arguments_of_an_ensemble_are_checked() -> None:
    several, equation = dudx.ensemble(networks()), Residual(slope, ("x", "t"), data=("n", "g"))
    x, data = points(6, 2), {"n": points(6, 2), "g": points(6, 1)}
    with pytest.raises(dudx.errors.InputError, match=r"shape \(B, d\)"):
        equation.loss(several, x.expand(3, -1, -1), Taylor(), **data)
    bad = x.clone()
    bad[2, 0] = float("nan")
    with pytest.raises(dudx.errors.InputError, match="row 2 holds a NaN"):
        equation.loss(several, bad, Taylor(), **data)


def test_a_coefficient_that_changes_is_noticed_for_members_too() -> None:
    nets, x = networks(), points(6, 2)
    several, number = dudx.ensemble(nets), [1.0]
    equation = Residual(lambda u: u.t - number[0] * u.xx, ("x", "t"))
    for number[0] in (1.0, 2.0, 3.0):
        exact = torch.stack([equation.loss(net, x, Taylor()) for net in nets])
        assert torch.allclose(equation.loss(several, x, Taylor()), exact)


class Scaled(nn.Module):
    """A network with a number, a function and a tensor that are no parameters."""

    def __init__(self, factor: float = 1.0, function: Any = torch.tanh, shift: float = 0.0) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 1, dtype=torch.float64)
        self.factor, self.function, self.places = factor, [function], {"shift": torch.tensor(shift)}

    def forward(self, x: Tensor) -> Tensor:
        return self.factor * self.function[0](self.layer(x)) + self.places["shift"]


@pytest.mark.parametrize(
    ("other", "where"),
    [
        (lambda: Scaled(factor=2.0), "factor"),
        (lambda: Scaled(function=torch.sigmoid), "function"),
        (lambda: Scaled(function=lambda u: u * u), "function"),
        (lambda: Scaled(shift=1.0), "places"),
        (lambda: Scaled().eval(), "training"),
        (lambda: Scaled().float(), "layer.weight"),
        (lambda: Scaled().requires_grad_(False), "layer.weight"),
        (lambda: mlp(2, 1), "its class"),
    ],
)
def test_members_differ_in_numbers_of_tensors_alone(other: Any, where: str) -> None:
    dudx.ensemble([Scaled(), Scaled()])
    with pytest.raises(dudx.errors.InputError, match=f"differs from the first in .*{where}"):
        dudx.ensemble([Scaled(), Scaled(), other()])


def test_layers_of_one_size_that_do_something_else_are_no_ensemble() -> None:
    nets = [nn.Sequential(nn.Linear(2, 4), act, nn.Linear(4, 1)) for act in (nn.Tanh(), nn.Sigmoid())]
    with pytest.raises(dudx.errors.InputError, match="Tanh and Sigmoid"):
        dudx.ensemble(nets)
    powers = [nn.Sequential(nn.Linear(2, 4), nn.Softplus(beta)) for beta in (1.0, 2.0)]
    with pytest.raises(dudx.errors.InputError, match="beta"):
        dudx.ensemble(powers)
    same = [nn.Sequential(nn.Linear(2, 4), nn.Softplus(2.0)) for _ in range(2)]
    for net in same:  # hooks and parametrizations of one kind are no difference
        net.register_forward_hook(lambda module, given, u: 2 * u)
        nn.utils.parametrizations.weight_norm(net[0])
    x = torch.rand(3, 2)
    assert torch.allclose(dudx.ensemble(same)(x), torch.stack([net(x) for net in same]))


class Shifted(nn.Module):
    """A network with a buffer."""

    def __init__(self, shift: float) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 1)
        self.register_buffer("shift", torch.tensor(shift))

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.layer(x) + self.shift)


def test_buffers_of_an_ensemble_are_converted_kept_and_loaded() -> None:
    nets, x = [Shifted(0.0), Shifted(1.0)], points(5, 2)
    several = dudx.ensemble(nets).double()
    exact = torch.stack([BURGERS(net.double(), x, Taylor()) for net in nets])
    assert BURGERS(several, x, Taylor()).dtype == torch.float64
    assert torch.allclose(BURGERS(several, x, Taylor()), exact)
    loaded = dudx.ensemble([Shifted(3.0), Shifted(4.0)]).double()
    loaded.load_state_dict(several.state_dict())
    assert torch.equal(loaded(x), several(x))
    assert torch.equal(loaded.members()[1](x), nets[1](x))


def test_engines_that_look_at_points_refuse_vmap() -> None:
    net, inside = mlp(2, 1, width=8), FD(1e-2, inside=lambda x: x[:, 0] - 1)
    grid = dudx.Separated([torch.linspace(0, 1, 5, dtype=torch.float64)] * 2)
    for model, x, engine in ((net, points(5, 2), inside), (Separable(2).double(), grid.points, grid)):
        with pytest.raises(UnsupportedError, match=r"torch\.func\.vmap"):
            vmap(lambda x, model=model, engine=engine: BURGERS(model, x, engine))(x.expand(2, -1, -1))


def test_fixed_points_do_not_move_in_forward_mode_either() -> None:
    engine, model = dudx.Separated([torch.linspace(0, 1, 5, dtype=torch.float64)] * 2), Separable(2).double()
    grid = engine.points
    with pytest.raises(UnsupportedError, match="fixed"):
        torch.func.jvp(lambda x: BURGERS(model, x, engine), (grid,), (torch.ones_like(grid),))


@pytest.mark.parametrize(
    "made", [torch.jit.script, lambda net: torch.jit.trace(net, points(3, 2))], ids=["script", "trace"]
)
def test_scripted_networks_are_no_ensemble(made: Any) -> None:
    with pytest.raises(dudx.errors.InputError, match="scripted or traced"):
        dudx.ensemble([made(net) for net in networks(2)])
