"""Batches whose size changes from call to call, and what is compiled for them."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import nn

import dudx
from dudx import Residual
from dudx.backend.compiler import from_compiler


def network(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1)).double()


def wide(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1)).double()


def burgers(u):
    return u.t + u * u.x - 0.1 * u.xx


def test_another_shape_is_computed_right():
    model, residual = network(), Residual(burgers, ("x", "t"), compile=True)
    for size in (16, 24, 11):
        x = torch.rand(size, 2, dtype=torch.float64)
        exact = Residual(burgers, ("x", "t"))(model, x, dudx.AD())
        assert torch.allclose(residual(model, x, dudx.Taylor()), exact, atol=1e-12)


@pytest.mark.usefixtures("only_traced")
@pytest.mark.filterwarnings("error::dudx.errors.CompilationWarning")
def test_batches_of_many_sizes_share_a_graph():
    model = network()
    compiled, eager = (
        Residual(lambda u, n: burgers(u) + u.along(n), ("x", "t"), data=("n",), compile=c) for c in (True, False)
    )
    # Three graphs: for the first size, for all other sizes, and for a single point, which is broadcast. (For fewer
    # points than a layer is wide torch may compile once more.)
    for size, graphs in ((16, 1), (24, 2), (11, 2), (33, 2), (16, 2), (1, 3)):
        x, n = torch.rand(2, size, 2, dtype=torch.float64)
        found = []
        for residual in (compiled, eager):
            model.zero_grad()
            loss = residual.loss(model, x, dudx.Taylor(), n=n)
            loss.backward()
            found.append((loss.detach(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)))
        for ours, exact in zip(*found, strict=True):
            assert torch.allclose(ours, exact, rtol=1e-9, atol=1e-12)
        assert compiled._compiled.graph_count == graphs


def test_a_size_for_which_layers_are_computed_in_another_way_is_counted(monkeypatch):
    """A layer of more than 2**15 activations takes two products: torch compiles again by itself."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    model = wide()
    compiled, eager = (Residual(burgers, ("x", "t"), compile=c) for c in (True, False))
    seen = []
    for rows in (100, 200, 300, 600, 700, 400):
        x, before = torch.rand(rows, 2, dtype=torch.float64), compiled.compile_seconds
        assert torch.allclose(compiled.loss(model, x, dudx.Taylor()), eager.loss(model, x, dudx.Taylor()))
        seen.append((compiled._compiled.graph_count, compiled.compile_seconds > before))
    assert seen == [(1, True), (2, True), (2, False), (3, True), (3, False), (3, False)]


@pytest.mark.filterwarnings("error::dudx.errors.CompilationWarning")
@pytest.mark.parametrize("name", ["Taylor", "FD"])
def test_batches_of_many_sizes_share_the_graph_of_an_ensemble(name, monkeypatch):
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    several = dudx.ensemble([network(seed) for seed in range(3)])
    compiled, eager = (Residual(burgers, ("x", "t"), compile=c) for c in (True, False))
    for size, graphs in ((16, 1), (24, 2), (11, 2), (33, 2)):
        x = torch.rand(size, 2, dtype=torch.float64)
        ours, exact = (
            residual(several, x, {"Taylor": dudx.Taylor(), "FD": dudx.FD(1e-2)}[name]) for residual in (compiled, eager)
        )
        assert torch.allclose(ours, exact, atol=1e-8)
        assert compiled._compiled.graph_count == graphs


@pytest.mark.filterwarnings("error")
def test_batches_of_many_sizes_share_the_graph_of_a_network_beside(monkeypatch):
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    model, k = network(), network(1)

    def diffusion(u, k):
        return (k * u.x).x - u.t

    compiled, eager = (Residual(diffusion, ("x", "t"), networks={"k": k}, compile=c) for c in (True, False))
    for size, graphs in ((16, 1), (24, 2), (11, 2), (33, 2)):
        x = torch.rand(size, 2, dtype=torch.float64)
        ours, exact = (residual(model, x, dudx.Taylor()) for residual in (compiled, eager))
        assert torch.allclose(ours, exact, atol=1e-12)
        assert compiled._compiled.graph_count == graphs


@pytest.mark.filterwarnings("error")
def test_large_layers_of_an_ensemble_are_left_open_too(monkeypatch):
    """Their streams are put together inside of vmap."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    several = dudx.ensemble([wide(seed) for seed in range(2)])
    compiled, eager = (Residual(burgers, ("x", "t"), compile=c) for c in (True, False))
    for rows, graphs in ((600, 1), (700, 2), (800, 2), (900, 2)):
        x = torch.rand(rows, 2, dtype=torch.float64)
        assert torch.allclose(compiled.loss(several, x, dudx.Taylor()), eager.loss(several, x, dudx.Taylor()))
        assert compiled._compiled.graph_count == graphs


def test_a_size_that_torch_cannot_leave_open_is_the_compilers_matter():
    # As where a network has torch.cat inside of vmap: each size is compiled for itself then.
    from torch.fx.experimental.symbolic_shapes import ConstraintViolationError

    assert from_compiler(ConstraintViolationError("specialized"))
