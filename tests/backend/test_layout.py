"""Tensors that compiled graphs put together: the same numbers, row by row in memory."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

from dudx.backend.row_major import rewrite


@pytest.mark.parametrize("tracing", ["fake", "symbolic"])
@pytest.mark.parametrize(("axes", "dim", "changed"), [(3, 1, 0), (4, 1, 1), (4, -1, 1), (5, 0, 1), (6, 2, 0)])
def test_images_are_avoided_and_numbers_kept(axes: int, dim: int, changed: int, tracing: Any) -> None:
    shape = [5, 1, 7, 3, 2, 4][:axes]
    parts = [torch.rand(shape) for _ in range(3)]
    made = make_fx(lambda *parts: 2 * torch.cat(parts, dim) + 1, tracing_mode=tracing)(*parts)
    before = made(*parts)
    rewrite(made.graph)
    made.graph.lint()
    found = [
        node.meta["val"].ndim for node in made.graph.find_nodes(op="call_function", target=torch.ops.aten.cat.default)
    ]
    assert found == [6 if changed else axes]
    after = GraphModule(made, made.graph)(*parts)
    assert torch.equal(before, after)
    assert after.is_contiguous()


def test_what_a_compiled_graph_puts_together_lies_row_by_row() -> None:
    from dudx.backend.graph_rewrites import faster_functions

    def stacked(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.cat([a.sin().unsqueeze(1), b.cos().unsqueeze(1)], dim=1)

    a, b = torch.rand(8, 32, 24), torch.rand(8, 32, 24)
    found = torch.compile(stacked, options=faster_functions())(a, b)
    assert torch.allclose(found, stacked(a, b))
    assert found.is_contiguous()
