"""Gradients that exist only outside of torch.func.vmap, once, or in a domain: each engine is right or refuses."""

from __future__ import annotations

import contextlib

import pytest
import torch
from helpers import every_engine, mlp, points
from torch import Tensor, nn

import dudx
from dudx import D, Laplacian, PerSampleAD
from dudx.engines.request import request_of

ENGINES = every_engine(0.02, 4)


class Fixpoint(nn.Module):
    """z = tanh(W z + U x), by iteration in a graph."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.w, self.u, self.out = (nn.Linear(4, 4), nn.Linear(2, 4), nn.Linear(4, 1))
        with torch.no_grad():
            self.w.weight.mul_(0.5)
        self.double()

    def step(self, z: Tensor, x: Tensor) -> Tensor:
        return torch.tanh(self.w(z) + self.u(x))

    def solved(self, x: Tensor) -> Tensor:
        z = torch.zeros(len(x), 4, dtype=x.dtype)
        for _ in range(60):
            z = self.step(z, x)
        return z

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.solved(x))


class Implicit(Fixpoint):
    """The fixed point without a graph; a hook gives it the gradient of the implicit function theorem."""

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            z = self.solved(x)
        z = self.step(z, x)
        if z.requires_grad:
            held = z.detach().requires_grad_()
            again = self.step(held, x)

            def solve(gradient: Tensor) -> Tensor:
                total = gradient
                for _ in range(60):
                    total = torch.autograd.grad(again, held, total, retain_graph=True)[0] + gradient
                return total

            z.register_hook(solve)
        return self.out(z)


class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = mlp()

    def after(self, h: Tensor) -> Tensor:
        return torch.tanh(h)

    def forward(self, x: Tensor) -> Tensor:
        return self.after(self.net(x))


class Conditional(Plain):
    """A branch by torch.cond, which is always the same one."""

    def after(self, h: Tensor) -> Tensor:
        return torch.cond(h.sum() > -1e9, torch.tanh, torch.sin, (h,))


class ConditionalOfPoints(Plain):
    def forward(self, x: Tensor) -> Tensor:
        return torch.cond(x.sum() > -1e9, lambda x: torch.tanh(self.net(x)), lambda x: torch.sin(self.net(x)), (x,))


class Mean(Plain):
    def after(self, h: Tensor) -> Tensor:
        return torch.tanh(h - h.mean(0))


class ConditionalMean(Plain):
    def after(self, h: Tensor) -> Tensor:
        return torch.cond(h.sum() > -1e9, lambda h: torch.tanh(h - h.mean(0)), torch.sin, (h,))


class Switching(Plain):
    """Saves half of its graph where its points seem to need no gradient."""

    def forward(self, x: Tensor) -> Tensor:
        h = self.net(x)
        return self.after(h if x.requires_grad else 0.5 * h + 0.5 * h.detach())


class Bounded(Plain):
    """Refuses points outside of the square [-1, 1]²."""

    def forward(self, x: Tensor) -> Tensor:
        assert bool((x.abs() <= 1).all()), "outside of the domain"
        return super().forward(x)


class BoundedConstant(Bounded):
    """Its gradient is lost."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + 0 * x[:, :1] if not x.requires_grad else super().forward(x.detach()) + 0 * x[:, :1]


class BoundedNumpy(Bounded):
    """Its gradient is lost in part."""

    def after(self, h: Tensor) -> Tensor:
        return 0.1 * h + torch.from_numpy(torch.tanh(h).detach().numpy()) - 0.1 * h.detach()


class NumpyClean(Plain):
    def after(self, h: Tensor) -> Tensor:
        return torch.tanh(h)


#: The network and the function it stands for, with the same parameters.
CASES = {
    "implicit layer": (Implicit, Fixpoint),
    "cond": (Conditional, Plain),
    "cond of the points": (ConditionalOfPoints, Plain),
    "cond in a coupled network": (ConditionalMean, Mean),
    "requires_grad": (Switching, Plain),
    "bounded": (Bounded, Plain),
    "bounded, constant": (BoundedConstant, Plain),
    "bounded, by numpy": (BoundedNumpy, NumpyClean),
}


@pytest.mark.parametrize("operators", [[D(0)], [D(), D(0), Laplacian()]], ids=["first", "second"])
@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("case", CASES)
def test_right_or_refused(case, name, operators):
    kind, clean = CASES[case]
    network, true, x = kind(), clean(), 0.95 * points(6, 2)
    true.load_state_dict(network.state_dict())
    try:
        found = dudx.evaluate(network, x, operators, ENGINES[name])
    except dudx.DudxError:
        return
    exact = PerSampleAD(method="loop").derivatives(true, x, request_of(operators, x))
    tolerance = 2e-5 if ENGINES[name].approximate else 1e-7
    for ours, theirs in zip(found, exact, strict=True):
        torch.testing.assert_close(ours.detach(), theirs.detach(), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("method", ["vectorised", "loop"])
def test_a_bounded_network_is_not_refused_by_the_loop(method):
    network, x = Bounded(), 0.95 * points(6, 2)
    with pytest.raises(dudx.DudxError) if method == "vectorised" else contextlib.nullcontext():
        dudx.evaluate(network, x, [D(0), Laplacian()], PerSampleAD(method=method))


def test_the_loop_is_recommended_where_vmap_changes_the_network():
    with pytest.raises(dudx.errors.UnsupportedError, match="method='loop'"):
        dudx.evaluate(Switching(), points(6, 2), D(0), PerSampleAD())
    dudx.evaluate(Switching(), points(6, 2), D(0), PerSampleAD(method="loop"))
