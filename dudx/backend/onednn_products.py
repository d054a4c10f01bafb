"""Matrix products of compiled graphs by oneDNN, where that is faster than the BLAS that torch calls.

MKL, which torch calls on x86, leaves half of the vector units of other makers' processors unused; oneDNN, which comes
with every torch, does not. Single precision only: oneDNN has no double precision.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.fx.graph import Graph
from torch.fx.node import Node

from dudx.backend.private_torch import product_by_onednn as product

#: How much faster it must be on this machine; it is more than twice as fast, or about the same.
_WORTHWHILE = 1.5
#: Rows and width of the product by which that is found out.
_TRIAL = (1024, 128)
#: The smallest width for which a product gains, and how many multiplications, with rows as they are stored and turned.
_WIDTH, _WIDTH_TURNED, _LEAST = 32, 64, 2_000_000

_library = torch.library.Library("dudx", "DEF")
_library.define("product(Tensor a, Tensor b) -> Tensor")


def _shape(a: Tensor, b: Tensor) -> Tensor:
    return a.new_empty(a.shape[0], b.shape[1])


_library.impl("product", product, "CPU")
_library.impl("product", _shape, "Meta")


@functools.lru_cache(maxsize=1)
def faster_here() -> bool:
    """Whether oneDNN is faster on this machine, found by trying both once: a few milliseconds."""
    if not torch.backends.mkldnn.is_available():
        return False
    rows, width = _TRIAL
    a, b = (torch.ones(n, width, dtype=torch.float32, device="cpu") for n in (rows, width))
    spent: dict[Callable[[Tensor, Tensor], Tensor], float] = {}
    try:
        for _ in range(8):  # in turn, and the shortest counts: others may use the machine
            for way in (torch.mm, product):
                began = time.perf_counter()
                way(a, b)
                spent[way] = min(spent.get(way, 1e9), time.perf_counter() - began)
    except Exception:  # a build of torch without it
        return False
    return spent[torch.mm] > _WORTHWHILE * spent[product]


def rewrite(graph: Graph) -> None:
    """Replace the large products in a graph that is about to be compiled."""
    for target, first in ((torch.ops.aten.mm.default, 0), (torch.ops.aten.addmm.default, 1)):
        for node in graph.find_nodes(op="call_function", target=target):
            a, b = node.args[first : first + 2]
            if node.kwargs or not _gains(node, a, b):
                continue
            with graph.inserting_before(node):
                made = graph.call_function(torch.ops.dudx.product.default, (a, b))
                with node.meta["val"].fake_mode:
                    made.meta["val"] = _shape(a.meta["val"], b.meta["val"])
                if first:
                    made = graph.call_function(torch.ops.aten.add.Tensor, (made, node.args[0]))
                    made.meta = dict(node.meta)
            node.replace_all_uses_with(made)
            graph.erase_node(node)


def _gains(node: Node, a: Any, b: Any) -> bool:
    result, left, right = node.meta["val"], a.meta["val"], b.meta["val"]
    # A size that is left open is a number of rows.
    sizes = [size if isinstance(size, int) else _TRIAL[0] for size in (*left.shape, right.shape[1])]
    if result.dtype != torch.float32 or result.device.type != "cpu" or math.prod(sizes) < _LEAST:
        return False
    return min(sizes) >= (_WIDTH if left.stride(1) == 1 else _WIDTH_TURNED)
