"""Never a silent wrong number: every trap of the table, with every engine, is either got right or refused.

A row is a network with a trap in it and the same function without; a new case is one line in `TRAPS`.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from helpers import every_engine, mlp, points
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import dudx
from dudx import D, Laplacian
from dudx.engines import meeting

#: Accurate to 4th order in a step of 1/50: six digits of what these networks are.
ENGINES = every_engine(0.02, 4)


def _layers(seed: int = 0) -> tuple[nn.Linear, nn.Linear, nn.Linear]:
    torch.manual_seed(seed)
    return nn.Linear(2, 8).double(), nn.Linear(8, 8).double(), nn.Linear(8, 1).double()


class Net(nn.Module):
    """Three linear layers; what happens between the first two, and whether it is a trap, is given."""

    def __init__(self, between: Callable[[Tensor], Tensor], layer: nn.Module | None = None):
        super().__init__()
        self.a, self.b, self.c = _layers()
        self.between, self.layer = between, layer

    def forward(self, x: Tensor) -> Tensor:
        return self.c(torch.tanh(self.b(self.between(self.a(x)))))


class Cubed(torch.autograd.Function):
    """x³ by hand."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return 3 * gradient * ctx.saved_tensors[0] ** 2


class Flattened(torch.autograd.Function):
    """A sine whose gradient is computed apart from the graph: the second derivative of it is lost."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return torch.sin(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient * torch.cos(ctx.saved_tensors[0].detach())


class StraightThrough(torch.autograd.Function):
    """A sine that passes gradients on as they are."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return torch.sin(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient


def _in_place_through_a_view(h: Tensor) -> Tensor:
    h = 1 * h
    h.view(-1).tanh_()
    return h


def _view_of_what_changes(h: Tensor) -> Tensor:
    h = 1 * h
    first = h[:, :4]
    h.mul_(2)
    return torch.cat([torch.tanh(first), h[:, 4:]], dim=1)


def _transposed_in_place(h: Tensor) -> Tensor:
    h = 1 * h
    h.T.sin_()
    return h


def _part_in_place(h: Tensor) -> Tensor:
    h = 1 * h
    h[:, :4].exp_()
    return h


def _half_in_place(h: Tensor) -> Tensor:
    left, right = h.chunk(2, dim=1)
    return torch.cat([torch.exp(left), right], dim=1)


def _by_numpy(h: Tensor) -> Tensor:
    return torch.from_numpy(np.tanh(h.detach().numpy()))


def _without_graph(h: Tensor) -> Tensor:
    with torch.no_grad():
        return torch.tanh(h)


def _written_to_data(h: Tensor) -> Tensor:
    h = 1 * h
    h.data.mul_(2)
    return h


def _fused_layer_norm(h: Tensor) -> Tensor:
    return torch.native_layer_norm(h, [8], None, None, 1e-5)[0]


def _norm(h: Tensor) -> Tensor:
    return (h - h.mean(1, keepdim=True)) / (h.var(1, keepdim=True, correction=0) + 1e-5).sqrt()


def _group_norm(h: Tensor) -> Tensor:
    return _norm(h.reshape(-1, 4)).reshape(-1, 8)


def _instance_norm(h: Tensor) -> Tensor:
    return F.instance_norm(h.reshape(-1, 2, 4)).reshape(-1, 8)


def _rms_norm(h: Tensor) -> Tensor:
    return h / (h.square().mean(1, keepdim=True) + 1e-5).sqrt()


def _attention(h: Tensor) -> Tensor:
    tokens = h.reshape(-1, 4, 2)
    return F.scaled_dot_product_attention(tokens, tokens, tokens).reshape(-1, 8)


def _attention_by_hand(h: Tensor) -> Tensor:
    tokens = h.reshape(-1, 4, 2)
    return (torch.softmax(tokens @ tokens.transpose(1, 2) / 2**0.5, dim=-1) @ tokens).reshape(-1, 8)


def _same(h: Tensor) -> Tensor:
    return h


def _pair(trap: Callable[[Tensor], Tensor], clean: Callable[[Tensor], Tensor]) -> tuple[nn.Module, nn.Module]:
    return Net(trap), Net(clean)


def _traced(between: Callable[[Tensor], Tensor], clean: Callable[[Tensor], Tensor]) -> tuple[nn.Module, nn.Module]:
    net = Net(between)
    return torch.jit.trace(net, torch.rand(5, 2, dtype=torch.float64)), Net(clean)  # type: ignore[return-value]


def _scripted() -> tuple[nn.Module, nn.Module]:
    a, b, c = _layers()
    made = nn.Sequential(a, nn.LayerNorm(8, elementwise_affine=False), b, nn.Tanh(), c).double()
    return torch.jit.script(made), Net(_norm)  # type: ignore[return-value]


def _exported() -> tuple[nn.Module, nn.Module]:
    a, b, c = _layers()
    made = nn.Sequential(a, nn.LayerNorm(8, elementwise_affine=False), b, nn.Tanh(), c).double()
    rows = torch.export.Dim("rows", min=2, max=4096)
    example = torch.rand(5, 2, dtype=torch.float64)
    return torch.export.export(made, (example,), dynamic_shapes=({0: rows},)).module(), Net(_norm)


def _without_any_graph() -> tuple[Callable[[Tensor], Tensor], nn.Module]:
    net = Net(torch.tanh)
    return torch.no_grad()(net), Net(torch.tanh)


def _partly_detached() -> tuple[nn.Module, nn.Module]:
    class Partly(Net):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(torch.cat([x[:, :1].detach(), x[:, 1:]], dim=1))

    return Partly(torch.tanh), Net(torch.tanh)


def _fixed(name: str, between: Callable[[Tensor], Tensor]) -> tuple[nn.Module, nn.Module]:
    """The same function from torch.special and written in terms of a function that torch can differentiate."""
    function = getattr(torch.special, name)
    return Net(lambda h: function(h)), Net(between)


def _bessel_j0(h: Tensor) -> Tensor:
    """From the integral (1/π) ∫ cos(x sin τ) dτ: the trapezoidal rule is exact to rounding."""
    angles = torch.arange(64, dtype=h.dtype) * (torch.pi / 64)
    return torch.cos(h.unsqueeze(-1) * torch.sin(angles)).mean(-1)


def _replaced_layer() -> tuple[nn.Module, nn.Module]:
    """Met twice as it was; then a layer is another."""
    a, b, c = _layers()
    net = nn.Sequential(a, nn.Tanh(), b, nn.Tanh(), c)
    for engine in ENGINES.values():
        for _ in range(2):
            dudx.evaluate(net, points(6, 2), [D(0), Laplacian()], engine)
    net[1] = nn.LayerNorm(8, elementwise_affine=False)
    return net, Net(_norm)


#: The trap and the function it stands for, made anew for each engine.
TRAPS: dict[str, Callable[[], tuple[Any, nn.Module]]] = {
    "norm called by its kernel": lambda: _pair(_fused_layer_norm, _norm),
    "norm in a trace": lambda: _traced(lambda h: F.layer_norm(h, [8]), _norm),
    "norm's kernel in a trace": lambda: _traced(_fused_layer_norm, _norm),
    "norm in a script": _scripted,
    "norm in an export": _exported,
    "group norm in a trace": lambda: _traced(lambda h: F.group_norm(h, 2), _group_norm),
    "instance norm in a trace": lambda: _traced(_instance_norm, _group_norm),
    "rms norm in a trace": lambda: _traced(lambda h: F.rms_norm(h, [8], eps=1e-5), _rms_norm),
    "attention": lambda: _pair(_attention, _attention_by_hand),
    "attention in a trace": lambda: _traced(_attention, _attention_by_hand),
    "function with a backward of its own": lambda: _pair(Cubed.apply, lambda h: h**3),
    "backward apart from the graph": lambda: _pair(Flattened.apply, torch.sin),
    "straight-through gradient": lambda: _pair(StraightThrough.apply, torch.sin),
    "checkpoint": lambda: _pair(lambda h: checkpoint(torch.sin, h, use_reentrant=False), torch.sin),
    "reentrant checkpoint": lambda: _pair(lambda h: checkpoint(torch.sin, h, use_reentrant=True), torch.sin),
    "in place through a view": lambda: _pair(_in_place_through_a_view, torch.tanh),
    "in place, transposed": lambda: _pair(_transposed_in_place, torch.sin),
    "in place, a part": lambda: _pair(_part_in_place, _half_in_place),
    "view of what changes": lambda: _pair(
        _view_of_what_changes, lambda h: torch.cat([torch.tanh(2 * h[:, :4]), 2 * h[:, 4:]], dim=1)
    ),
    "written to .data": lambda: _pair(_written_to_data, lambda h: 2 * h),
    "no graph at all": _without_any_graph,
    "no graph in a layer": lambda: _pair(_without_graph, torch.tanh),
    "through numpy": lambda: _pair(_by_numpy, torch.tanh),
    "detached": lambda: _pair(lambda h: torch.tanh(h.detach()), torch.tanh),
    "detached in one variable": _partly_detached,
    "function without derivative": lambda: _fixed("bessel_j0", _bessel_j0),
    "function without derivative, in a sum": lambda: _pair(lambda h: 0 * h + torch.special.bessel_j0(h), _bessel_j0),
    "function without derivative, beside one": lambda: _pair(
        lambda h: h + torch.special.bessel_j0(h), lambda h: h + _bessel_j0(h)
    ),
    "layer replaced between calls": _replaced_layer,
}


#: Networks that keep gradients from their parameters themselves, whatever is computed of them.
THEIR_OWN_GRADIENTS = {
    "straight-through gradient", "written to .data", "no graph at all", "no graph in a layer", "through numpy",
    "detached", "function without derivative", "function without derivative, in a sum",
    "function without derivative, beside one",
}  # fmt: skip


@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
@pytest.mark.parametrize("trap", TRAPS)
def test_right_or_refused(trap, engine):
    network, clean = TRAPS[trap]()
    x = points(6, 2)
    try:
        found = dudx.evaluate(network, x, [D(), D(0), D(1), Laplacian()], engine)
    except dudx.DudxError as refusal:
        if "dudx." not in str(refusal) or engine.approximate:  # a sentence says what to use, and it may be differences
            raise
        return
    tolerance = 2e-5 if engine.approximate else 1e-9
    true = _derivatives(clean, x)
    for ours, exact in zip(found, true, strict=True):
        torch.testing.assert_close(ours.detach(), exact.detach(), rtol=tolerance, atol=tolerance)
    if trap in THEIR_OWN_GRADIENTS:
        return
    for values in (found, true):  # by backward, as autograd.grad does not go through reentrant checkpoints
        sum((value * value).sum() for value in values).backward()
    for mine, theirs in zip(network.parameters(), clean.parameters(), strict=True):
        assert mine.grad is not None
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=20 * tolerance, atol=20 * tolerance)


def _derivatives(clean: nn.Module, x: Tensor) -> tuple[Tensor, ...]:
    """Value, gradient and Laplacian by nested torch.func."""

    def alone(point: Tensor) -> Tensor:
        return clean(point.unsqueeze(0)).squeeze(0)

    value, gradient = torch.func.vmap(alone)(x), torch.func.vmap(torch.func.jacfwd(alone))(x)
    hessian = torch.func.vmap(torch.func.jacfwd(torch.func.jacfwd(alone)))(x)
    return value, gradient[..., 0], gradient[..., 1], hessian.diagonal(dim1=-2, dim2=-1).sum(-1)


#: Parts that somebody has made constant on purpose, while others carry the derivative: they are constant.
INTENDED: dict[str, Callable[[Tensor], Tensor]] = {
    "detached in a factor": lambda h: h * torch.tanh(h.detach()),
    "no graph beside one": lambda h: h + _without_graph(h),
    "a whole part": lambda h: h * torch.floor(3 * h.detach()),
}
EXACT = {name: engine for name, engine in ENGINES.items() if not engine.approximate}


@pytest.mark.parametrize("engine", EXACT.values(), ids=EXACT)
@pytest.mark.parametrize("between", INTENDED.values(), ids=INTENDED)
def test_a_part_that_is_constant_on_purpose_stays_constant(between, engine):
    network, x = Net(between), points(6, 2).requires_grad_()
    try:
        slope = dudx.evaluate(network, x, D(0), engine)
    except dudx.UnsupportedError as refusal:
        if not isinstance(engine, dudx.Taylor) or "dudx.AD()" not in str(refusal):
            raise
        return
    (true,) = torch.autograd.grad(network(x).sum(), x)
    torch.testing.assert_close(slope.detach(), true[:, :1])


@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "network",
    [
        lambda x: torch.ones_like(x),
        lambda x: x[:, :1].detach() * 0 + x[:, 1:],
        lambda x: torch.floor(7 * x).detach() + 0 * x,
        lambda x: torch.sign(x),
        lambda x: torch.relu(x) + 100.0,
        lambda x: 1e4 * torch.sin(300 * x),
        lambda x: torch.sqrt(x.abs()),
    ],
    ids=["constant", "constant in one variable", "steps", "signs", "kinks", "steep", "roots"],
)
@pytest.mark.filterwarnings("ignore::dudx.KinkWarning")
def test_what_is_right_is_not_refused(network, dtype, engine):
    try:
        dudx.evaluate(network, points(16, 2).to(dtype), [D(0), D(1), Laplacian()], engine)
    except dudx.UnsupportedError as refusal:
        if "has no rule for" not in str(refusal):
            raise


# -- differences of networks that draw random numbers --------------------------------------------------------------


class Noisy(nn.Module):
    """Adds noise to its features."""

    def forward(self, x: Tensor) -> Tensor:
        return x * (1 + torch.rand_like(x))


RANDOM = {
    "dropout": lambda: nn.Dropout(0.4),
    "alpha dropout": lambda: nn.AlphaDropout(0.4),
    "noise": Noisy,
}


@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
@pytest.mark.parametrize("layer", RANDOM.values(), ids=RANDOM)
def test_all_rows_of_a_point_see_the_same_random_numbers(layer, engine):
    """One input and one output, and the second derivative along it: the value is of one draw, and so are the others."""
    a, b, c = _layers()
    model = nn.Sequential(a, nn.Tanh(), layer(), b, nn.Tanh(), c)
    x = points(6, 2)
    try:
        found = dudx.evaluate(model, x, [D(0), Laplacian()], engine)
    except dudx.UnsupportedError:
        if engine.approximate:
            raise
        return
    # No draw of these networks has larger derivatives; with a mask for each row they are a thousand times that.
    assert max(float(value.detach().abs().max()) for value in found) < 20


class Checkpointed(nn.Module):
    def __init__(self, *layers: nn.Module):
        super().__init__()
        self.inner = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        return checkpoint(self.inner, x, use_reentrant=False)


@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
def test_random_numbers_that_the_backward_pass_draws_again(engine):
    """Exact engines find what they find without the checkpoint; others say so before the backward pass fails."""
    x, gradients = points(6, 2), []
    for kind in (Checkpointed, nn.Sequential):
        a, b, c = _layers()
        torch.manual_seed(1)
        try:
            found = dudx.evaluate(nn.Sequential(kind(a, nn.Tanh(), nn.Dropout(0.4)), b, c), x, Laplacian(), engine)
        except dudx.UnsupportedError as refusal:
            if kind is not Checkpointed or (engine.approximate and "inside of torch.utils.ch" not in str(refusal)):
                raise
            return
        gradients.append([found.detach(), *torch.autograd.grad(found.square().sum(), [a.weight, b.weight])])
    torch.testing.assert_close(*gradients)


def test_a_random_network_is_neither_calibrated_nor_recommended_for_differences():
    a, _, c = _layers()
    model = nn.Sequential(a, nn.Tanh(), nn.Dropout(0.4), c)
    x = points(16, 2)
    with pytest.raises(dudx.CalibrationError, match=r"model\.eval\(\)"):
        dudx.FD().calibrated(model, x, [Laplacian()])
    offered = {candidate.name: candidate for candidate in dudx.recommend(model, x, [Laplacian()], repeats=1)}
    assert np.isnan(offered["FD"].seconds)
    assert "random numbers" in offered["FD"].note
    assert offered["AD"].seconds > 0


# -- networks that compute in a coarser format than their points ------------------------------------------------------


class Rounded(nn.Module):
    def __init__(self, dtype: torch.dtype):
        super().__init__()
        self.dtype = dtype

    def forward(self, x: Tensor) -> Tensor:
        return x.to(self.dtype).to(x.dtype)


@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
def test_formats_agree_under_autocast(engine):
    a, b, c = (layer.float() for layer in _layers())
    model, x = nn.Sequential(a, nn.Tanh(), b, nn.Tanh(), c), points(6, 2).float()
    true = [value.detach() for value in dudx.evaluate(model, x, [D(), D(0), Laplacian()], dudx.AD())]
    with torch.autocast("cpu", torch.bfloat16):
        try:
            found = dudx.evaluate(model, x, [D(), D(0), Laplacian()], engine)
        except dudx.UnsupportedError as refusal:
            if not engine.approximate or "coarser format" not in str(refusal):
                raise
            return
    for ours, exact in zip(found, true, strict=True):
        assert ours.dtype == torch.float32
        torch.testing.assert_close(ours.detach(), exact, rtol=0.05, atol=0.02)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_calibrated_as_it_is_evaluated(dtype):
    a, b, c = (layer.float() for layer in _layers())
    model, x = nn.Sequential(a, Rounded(dtype), nn.Tanh(), b, nn.Tanh(), c), points(64, 2).float()
    smooth = nn.Sequential(a, nn.Tanh(), b, nn.Tanh(), c)
    (true,) = dudx.evaluate(smooth, x, [D(0)], dudx.AD())
    with pytest.raises(dudx.UnsupportedError, match="coarser format"):
        dudx.evaluate(model, x, D(0), dudx.FD(1e-4))
    engine = dudx.FD().calibrated(model, x, [D(0)], reference="differences")
    (found,) = dudx.evaluate(model, x, [D(0)], engine)
    assert float((found - true).detach().norm() / true.detach().norm()) < 0.1


# -- what was recorded, and is asked for again --------------------------------------------------------------------


def test_a_residual_that_asks_for_something_else_when_replayed():
    a, _, c = _layers()
    model, calls = nn.Sequential(a, nn.Tanh(), c), []

    def alternating(u):
        calls.append(1)
        return u.x if len(calls) % 2 else u.xx

    with pytest.raises(dudx.InputError, match="other derivatives"):
        dudx.Residual(alternating, ("x", "y"))(model, points(6, 2), dudx.AD())


# -- several layers that mix samples ------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
def test_isolation_is_exact_with_two_batch_norms(engine):
    a, b, c = _layers()
    model = nn.Sequential(a, nn.BatchNorm1d(8), nn.Tanh(), b, nn.BatchNorm1d(8), nn.Tanh(), c).double()
    x = points(6, 2)
    (true,) = dudx.evaluate(model, x, [Laplacian()], dudx.PerSampleAD(method="loop"))
    if engine.coupled is not None:
        with pytest.raises(dudx.CoupledModelError, match=r"dudx\.isolate"):
            dudx.evaluate(model, x, Laplacian(), engine)
    (found,) = dudx.evaluate(dudx.isolate(model, x), x, [Laplacian()], engine)
    tolerance = 5e-3 if engine.approximate else 1e-9  # features as narrow as those of 6 samples have large derivatives
    assert float((found - true).detach().abs().max()) < tolerance * float(true.detach().abs().max())


# -- kinks -----------------------------------------------------------------------------------------------------------


class Straight(nn.Module):
    """Kinks in its own code, and no layer that has them."""

    def __init__(self) -> None:
        super().__init__()
        self.a, _, self.c = _layers()

    def forward(self, x: Tensor) -> Tensor:
        return self.c(F.relu(self.a((x - 0.5) / 2)))


@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
@pytest.mark.parametrize(
    ("make", "where"),
    [
        (lambda: nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1)).double(), r"layer '1' \(ReLU\)"),
        (lambda: nn.Sequential(nn.Linear(2, 8), nn.PReLU(), nn.Linear(8, 1)).double(), r"layer '1' \(PReLU\)"),
        (Straight, "relu in its own code"),
    ],
)
def test_a_network_without_second_derivatives_is_named_once(make, where, engine):
    model, x = make(), points(6, 2)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", dudx.KinkWarning)
            dudx.evaluate(model, x, D(0), engine)  # a first derivative it has
        with pytest.warns(dudx.KinkWarning, match=where):
            dudx.evaluate(model, x, Laplacian(), engine)
    except dudx.UnsupportedError:
        return
    with warnings.catch_warnings():
        warnings.simplefilter("error", dudx.KinkWarning)
        for _ in range(4):
            dudx.evaluate(model, x, Laplacian(), engine)


# -- threads -------------------------------------------------------------------------------------------------------


def test_nothing_of_the_process_changes_while_networks_are_looked_at():
    """Another thread draws numbers and asks for the fast paths of attention all the while."""
    torch.manual_seed(7)
    expected = [torch.rand(4) for _ in range(2000)]
    torch.manual_seed(7)
    drawn: list[Tensor] = []
    flags: set[tuple[bool, ...]] = set()
    done = threading.Event()

    def look() -> tuple[bool, ...]:
        cuda = torch.backends.cuda
        return (torch.backends.mha.get_fastpath_enabled(), cuda.flash_sdp_enabled(), cuda.mem_efficient_sdp_enabled())

    def other_thread() -> None:
        while not done.is_set():
            flags.add(look())
            if len(drawn) < len(expected):
                drawn.append(torch.rand(4))

    before = look()
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(6, 2, dtype=torch.float64, generator=generator)
    layer = nn.TransformerEncoderLayer(8, 2, 8, dropout=0.1, batch_first=True)
    model = nn.Sequential(nn.Linear(2, 8), nn.Unflatten(1, (1, 8)), layer, nn.Flatten(), nn.Linear(8, 1)).double()
    torch.manual_seed(7)
    thread = threading.Thread(target=other_thread)
    thread.start()
    try:
        for _ in range(2):
            dudx.coupled(model, x)
            dudx.explain(model.eval(), x)
            dudx.evaluate(model.eval(), x, Laplacian(), dudx.AD())
            dudx.evaluate(model.eval(), x, Laplacian(), dudx.PerSampleAD(method="loop"))
    finally:
        done.set()
        thread.join()
    assert flags == {before}
    assert len(drawn) > 10
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(drawn, expected, strict=False))


# -- compiled graphs ---------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("only_traced")
@pytest.mark.parametrize("fresh", ["lambda", "method"])
def test_a_network_that_is_written_anew_at_each_call_is_compiled_once(fresh):
    a, _, c = _layers()
    model, x = nn.Sequential(a, nn.Tanh(), c), points(6, 2)
    heat = dudx.Residual(lambda u: u.y - u.xx, ("x", "y"), compile=True)
    true = dudx.Residual(lambda u: u.y - u.xx, ("x", "y")).loss(model, x, dudx.FD(1e-2))
    for _ in range(4):
        network = (lambda x: model(x)) if fresh == "lambda" else model.forward
        torch.testing.assert_close(heat.loss(network, x, dudx.FD(1e-2)), true)
    assert heat._compiled is not None
    assert heat._compiled.made == 1


@pytest.mark.usefixtures("only_traced")
def test_a_number_that_changes_is_named_as_the_reason(monkeypatch):
    monkeypatch.setattr("dudx.compile.graphs._TOLD", 3)
    monkeypatch.setattr("dudx.compile.graphs._MOST", 3)
    a, _, c = _layers()
    model, x, nu = nn.Sequential(a, nn.Tanh(), c), points(6, 2), [0.0]
    heat = dudx.Residual(lambda u: u.y - nu[0] * u.xx, ("x", "y"), compile=True)
    plain = dudx.Residual(lambda u: u.y - nu[0] * u.xx, ("x", "y"))
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always", dudx.CompilationWarning)
        for number in range(5):
            nu[0] = 0.1 * (number + 1)
            torch.testing.assert_close(heat.loss(model, x, dudx.FD(1e-2)), plain.loss(model, x, dudx.FD(1e-2)))
    (said,) = [str(warning.message) for warning in seen if warning.category is dudx.CompilationWarning]
    assert "multiplies them with another number" in said
    assert heat._compiled is not None
    assert heat._compiled.made == 3


def test_a_look_puts_back_the_numbers_of_its_engine_and_nobody_elses(monkeypatch):
    model, x, own = mlp(2, 1), points(4, 2), torch.Generator().manual_seed(1)
    seen = []

    def look(*_):
        seen.append(torch.rand(1))  # as another thread would, in the middle of it
        torch.rand(1, generator=own)

    monkeypatch.setattr(meeting, "_looked_at", look)
    state = own.get_state()
    meeting.can_be_planned(dudx.SFD(steps=(1e-3, 1e-2), generator=own), model, x, [D(0)])
    assert torch.equal(own.get_state(), state)
    meeting.can_be_planned(dudx.SFD(steps=(1e-3, 1e-2)), mlp(2, 1), x, [D(0)])
    assert len(seen) == 2
    assert not torch.equal(torch.rand(1), seen[1])
