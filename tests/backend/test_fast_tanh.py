"""The tanh of compiled graphs: its accuracy in single precision, and that it is used there and nowhere else."""

from __future__ import annotations

import math
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

from dudx import FD, Residual, Taylor
from dudx.backend import fast_tanh as module
from dudx.backend.fast_tanh import rewrite, tanh
from dudx.backend.graph_rewrites import faster_functions


@pytest.mark.parametrize("compiled", [False, True])
def test_it_is_as_accurate_as_single_precision_allows(compiled: bool) -> None:
    sizes = torch.cat(
        [torch.logspace(-44, 2, 200_001), torch.linspace(0.5, 0.8, 100_001), torch.linspace(0, 12, 100_001)]
    )
    x = torch.cat([sizes, -sizes])
    found = (torch.compile(tanh) if compiled else tanh)(x)
    exact = torch.tanh(x.double())
    unit = torch.from_numpy(np.spacing(exact.abs().float().numpy())).double()
    assert float(((found - exact).abs() / unit).max()) < 1.5
    assert float(found.abs().max()) == 1.0


def test_its_ends_are_those_of_torch() -> None:
    x = torch.tensor([0.0, -0.0, math.inf, -math.inf, math.nan, 1e-45, -1e-45, 3e38])
    found, expected = tanh(x), torch.tanh(x)
    assert torch.equal(found.nan_to_num(7), expected.nan_to_num(7))


@pytest.mark.parametrize(("dtype", "left"), [(torch.float32, 0), (torch.float64, 1), (torch.bfloat16, 1)])
def test_only_single_precision_is_replaced(dtype: torch.dtype, left: int) -> None:
    graph = make_fx(lambda x: torch.tanh(2 * x) + 1, tracing_mode="fake")(torch.rand(3, dtype=dtype)).graph
    rewrite(graph)
    graph.lint()
    assert len(graph.find_nodes(op="call_function", target=torch.ops.aten.tanh.default)) == left


def test_compiled_residuals_use_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    counts = []

    def counted(graph: torch.fx.Graph) -> None:
        counts.append(len(graph.find_nodes(op="call_function", target=torch.ops.aten.tanh.default)))
        rewrite(graph)

    monkeypatch.setattr(module, "rewrite", counted)
    file = tmp_path / "another.py"  # else a graph from torch's cache needs no pass
    file.write_text(str(time.time_ns()))
    monkeypatch.setattr(module, "__file__", str(file))
    assert deviation(Taylor()) < 1e-5
    assert max(counts) > 0


def test_a_pass_of_the_users_own_is_left_in_place() -> None:
    assert faster_functions()
    with torch._inductor.config.patch(post_grad_custom_post_pass=lambda graph: None):
        assert faster_functions() == {}


def deviation(engine: Taylor | FD) -> float:
    """Return how much gradients of a compiled residual differ from those of an uncompiled one."""
    torch.manual_seed(0)
    model, x = (
        nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1)),
        torch.rand(64, 2),
    )
    gradients = []
    for compile in (False, True):
        model.zero_grad()
        Residual(lambda u: u.laplacian() + u, ("x", "y"), compile=compile).loss(model, x, engine).backward()
        gradients.append(torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]))
    return float((gradients[0] - gradients[1]).norm() / gradients[0].norm())


def test_differences_of_compiled_networks_agree_with_themselves() -> None:
    assert deviation(FD(0.1)) < 1e-3
