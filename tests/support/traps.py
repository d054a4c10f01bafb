"""Networks with a trap in them, each beside the same function without; a new case is one line in `TRAPS`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from helpers import every_engine, points
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import dudx
from dudx import D, Laplacian

#: Accurate to 4th order in a step of 1/50: six digits of what these networks are.
ENGINES = every_engine(0.02, 4)


def layers(seed: int = 0) -> tuple[nn.Linear, nn.Linear, nn.Linear]:
    torch.manual_seed(seed)
    return nn.Linear(2, 8).double(), nn.Linear(8, 8).double(), nn.Linear(8, 1).double()


class Net(nn.Module):
    """Three linear layers; what happens between the first two, and whether it is a trap, is given."""

    def __init__(self, between: Callable[[Tensor], Tensor]):
        super().__init__()
        self.a, self.b, self.c = layers()
        self.between = between

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


def without_graph(h: Tensor) -> Tensor:
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


def _pair(trap: Callable[[Tensor], Tensor], clean: Callable[[Tensor], Tensor]) -> tuple[nn.Module, nn.Module]:
    return Net(trap), Net(clean)


def _traced(between: Callable[[Tensor], Tensor], clean: Callable[[Tensor], Tensor]) -> tuple[nn.Module, nn.Module]:
    net = Net(between)
    return torch.jit.trace(net, torch.rand(5, 2, dtype=torch.float64)), Net(clean)  # type: ignore[return-value]


def _scripted() -> tuple[nn.Module, nn.Module]:
    a, b, c = layers()
    made = nn.Sequential(a, nn.LayerNorm(8, elementwise_affine=False), b, nn.Tanh(), c).double()
    return torch.jit.script(made), Net(_norm)  # type: ignore[return-value]


def _exported() -> tuple[nn.Module, nn.Module]:
    a, b, c = layers()
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
    """Return networks of a function from torch.special and of its equivalent that torch can differentiate."""
    function = getattr(torch.special, name)
    return Net(lambda h: function(h)), Net(between)


def _bessel_j0(h: Tensor) -> Tensor:
    """From the integral (1/π) ∫ cos(x sin τ) dτ: the trapezoidal rule is exact to rounding."""
    angles = torch.arange(64, dtype=h.dtype) * (torch.pi / 64)
    return torch.cos(h.unsqueeze(-1) * torch.sin(angles)).mean(-1)


def _replaced_layer() -> tuple[nn.Module, nn.Module]:
    """Met twice as it was; then a layer is another."""
    a, b, c = layers()
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
    "no graph in a layer": lambda: _pair(without_graph, torch.tanh),
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

#: Engines that ask autograd, all in the same way.
_AUTOGRAD = frozenset({"AD", "PerSampleAD", "PerSampleAD-loop"})
_EXACT = _AUTOGRAD | {"Taylor"}
#: Engines that refuse a network, because only differences see the problem or torch cannot differentiate twice.
#: All other engines are correct.
REFUSED: dict[str, frozenset[str]] = {
    "norm called by its kernel": frozenset({"Taylor"}),
    "norm in a trace": _EXACT,
    "norm's kernel in a trace": _EXACT,
    "norm in a script": _EXACT,
    "norm in an export": _AUTOGRAD,
    "instance norm in a trace": _EXACT,
    "function with a backward of its own": frozenset({"PerSampleAD"}),
    "backward apart from the graph": _EXACT,
    "straight-through gradient": _EXACT,
    "checkpoint": frozenset({"PerSampleAD"}),
    "reentrant checkpoint": _AUTOGRAD,
    "written to .data": _EXACT,
    "no graph at all": _EXACT,
    "no graph in a layer": _EXACT,
    "through numpy": _EXACT,
    "detached": _EXACT,
    "detached in one variable": _EXACT,
    "function without derivative": _EXACT,
    "function without derivative, in a sum": _EXACT,
    "function without derivative, beside one": _EXACT,
}


class OfOneSize(Net):
    """A batch of 100 points is centred, and no other."""

    def forward(self, x: Tensor) -> Tensor:
        u = super().forward(x)
        return u - u.mean(0) if len(x) == 100 else u


class Tiring(Net):
    """From the 30th call on it is another network."""

    calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return super().forward(x) * (2 if self.calls >= 30 else 1)


class HalfGradient(torch.autograd.Function):
    """A product whose gradient is right in the points, and half of it in the weight."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return x * weight

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        return gradient * weight, 0.5 * (gradient * x).sum(0)


class HalfTrained(Net):
    def __init__(self) -> None:
        super().__init__(torch.tanh)
        self.scale = nn.Parameter(torch.linspace(0.5, 1.5, 8, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return self.c(torch.tanh(self.b(torch.tanh(HalfGradient.apply(self.a(x), self.scale)))))


class FromOneRow(Net):
    """Beyond the 300th row the gradient is lost."""

    def forward(self, x: Tensor) -> Tensor:
        u = super().forward(x)
        return torch.cat([u[:300], u[300:].detach() + 0 * u[300:]])


#: Networks that engines take for sound at first use, and the line of `dudx.diagnose.check` that finds each.
THOROUGH: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "batch of one size": (lambda: OfOneSize(torch.tanh), "batches of other sizes and orders"),
    "another one from the 30th call on": (lambda: Tiring(torch.tanh), "repeated calls"),
    "half the gradient of a parameter": (HalfTrained, "gradients in the parameters"),
    "no gradient beyond a row": (lambda: FromOneRow(torch.tanh), "derivatives against differences"),
}
