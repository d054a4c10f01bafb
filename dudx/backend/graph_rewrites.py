"""Rewrites of compiled graphs after differentiation: faster kernels than torch would choose."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch.fx.graph import Graph

from dudx.backend import fast_tanh, onednn_products, row_major


def faster_functions() -> dict[str, Any]:
    """Return options for `torch.compile` that apply the rewrites; empty if the user has set a graph pass already."""
    used: list[Any] = [fast_tanh, row_major, *([onednn_products] if onednn_products.faster_here() else [])]

    def rewrite(graph: Graph) -> None:
        for module in used:
            module.rewrite(graph)

    return _with_graph_pass(rewrite, [module.__file__ for module in used])


def _with_graph_pass(rewrite: Callable[[Graph], None], files: Sequence[str]) -> dict[str, Any]:
    """Return options for `torch.compile` that run `rewrite` on each graph, unless the user has set a pass there.

    Without torch's hook the options are empty: compiled graphs use torch's own kernels.

    Args:
        rewrite: changes a graph in place.
        files: source files whose content is part of the key in torch's compilation cache on disk.
    """
    import torch._inductor.config as settings

    try:
        from torch._inductor.custom_graph_pass import CustomGraphPass, get_hash_for_files
    except ImportError:
        return {}
    if getattr(settings, "post_grad_custom_post_pass", rewrite) is not None:
        return {}

    class Pass(CustomGraphPass):
        def __call__(self, graph: Graph) -> None:
            rewrite(graph)

        def uuid(self) -> Any:
            return get_hash_for_files(tuple(files))

    return {"post_grad_custom_post_pass": Pass()}
