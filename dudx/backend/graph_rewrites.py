"""What compiled graphs compute in another way than torch would."""

from __future__ import annotations

from typing import Any

from torch.fx.graph import Graph

from dudx.backend import fast_tanh, onednn_products, row_major
from dudx.backend.private_torch import with_graph_pass


def faster_functions() -> dict[str, Any]:
    """Options for `torch.compile`; none where the user has a pass over graphs of their own."""
    used: list[Any] = [fast_tanh, row_major, *([onednn_products] if onednn_products.faster_here() else [])]

    def rewrite(graph: Graph) -> None:
        for module in used:
            module.rewrite(graph)

    return with_graph_pass(rewrite, [module.__file__ for module in used])
