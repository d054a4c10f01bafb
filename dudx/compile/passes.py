"""What is changed in a graph on its way to machine code."""

from __future__ import annotations

from typing import Any

from torch.fx.graph import Graph

from dudx.compile import layout, tanh
from dudx.private_torch import with_graph_pass


def rewritten(graph: Graph) -> None:
    """All changes, in place."""
    tanh.replace_tanh(graph)
    layout.keep_rows(graph)


def with_passes() -> dict[str, Any]:
    """Options for `torch.compile`; none where the user has a pass over graphs of their own."""
    return with_graph_pass(rewritten, (layout.__file__, tanh.__file__))
