"""Matrix products of compiled graphs by oneDNN: equal to torch's, used where large and of single precision."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx

from dudx import Residual, Taylor
from dudx.backend import onednn_products
from dudx.backend.onednn_products import product, rewrite

pytestmark = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch has no oneDNN")


def counted(function: Callable[..., Tensor], *tensors: Tensor) -> int:
    """Return the number of products that become oneDNN's; check that the results are unchanged."""
    made = make_fx(function, tracing_mode="fake")(*tensors)
    before = made(*tensors)
    rewrite(made.graph)
    made.graph.lint()
    made.recompile()
    assert float((made(*tensors) - before).norm() / before.norm()) < 1e-6
    return len(made.graph.find_nodes(op="call_function", target=torch.ops.dudx.product.default))


@pytest.mark.parametrize("turned", [(False, False), (True, False), (False, True), (True, True)])
def test_a_product_is_that_of_double_precision(turned: tuple[bool, bool]) -> None:
    torch.manual_seed(0)
    sizes = [(300, 70), (70, 90)]
    a, b = (torch.randn(*(size[::-1] if flip else size)) for size, flip in zip(sizes, turned, strict=True))
    a, b = (tensor.t() if flip else tensor for tensor, flip in zip((a, b), turned, strict=True))
    # Sums of 70 products of about one, each rounded to 6e-8.
    torch.testing.assert_close(product(a, b), (a.double() @ b.double()).float(), rtol=1e-5, atol=2e-5)


def test_large_products_of_single_precision_are_replaced() -> None:
    a, b = torch.randn(1024, 64), torch.randn(64, 64)
    assert counted(torch.mm, a, b) == 1
    assert counted(lambda a, b: a.t() @ a @ b, a, b) == 1
    assert counted(torch.addmm, torch.randn(64), a, b) == 1
    assert counted(torch.addmm, torch.randn(1024, 64), a, b) == 1


def test_all_others_are_left_alone() -> None:
    a, b = torch.randn(1024, 64), torch.randn(64, 64)
    assert counted(torch.mm, a.double(), b.double()) == 0
    assert counted(torch.mm, a[:100], b) == 0  # too few rows
    assert counted(torch.mm, a, b[:, :1]) == 0  # too narrow
    assert counted(lambda a: a.t() @ a, torch.randn(4096, 32)) == 0  # too narrow to be turned
    assert counted(lambda c, a, b: torch.addmm(c, a, b, beta=2.0), torch.randn(64), a, b) == 0


def test_compiled_residuals_use_it_where_it_is_faster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
    calls, x = [], torch.rand(1024, 2)

    def noted(graph: torch.fx.Graph) -> None:
        rewrite(graph)
        calls.append(len(graph.find_nodes(op="call_function", target=torch.ops.dudx.product.default)))

    def loss(compile: bool) -> Tensor:
        return Residual(lambda u: u.laplacian() + u, ("x", "y"), compile=compile).loss(model, x, Taylor())

    def gradient(compile: bool) -> Tensor:
        model.zero_grad()
        loss(compile).backward()
        return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])

    file = tmp_path / "another.py"  # else a graph from torch's cache needs no pass
    file.write_text(str(time.time_ns()))
    monkeypatch.setattr(onednn_products, "__file__", str(file))
    monkeypatch.setattr(onednn_products, "rewrite", noted)
    for found, faster in ((gradient, True), (torch.no_grad()(loss), False)):
        expected = found(compile=False)
        calls.clear()
        monkeypatch.setattr(onednn_products, "faster_here", lambda faster=faster: faster)
        assert float((found(compile=True) - expected).norm() / expected.norm()) < 1e-5
        assert bool(sum(calls)) is faster
