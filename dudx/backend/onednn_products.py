"""Matrix products of compiled graphs by oneDNN, where that is faster than the BLAS library that torch calls.

MKL, which torch calls on x86, uses half of the vector units of processors that are not Intel's; oneDNN, which is part
of torch, uses all of them. Single precision only: oneDNN has no double precision.
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

#: Least speed-up on this machine for oneDNN to be used; measured speed-ups are above 2 or about 1.
_WORTHWHILE = 1.5
#: Rows and width of the product that is timed.
_TRIAL = (1024, 128)
#: Products that gain: least width with row-major and with transposed left factors, and least number of multiplications.
_WIDTH, _WIDTH_TURNED, _LEAST = 32, 64, 2_000_000

_library = torch.library.Library("dudx", "DEF")
_library.define("product(Tensor a, Tensor b) -> Tensor")


def product(a: Tensor, b: Tensor) -> Tensor:
    """Multiply two single-precision matrices with oneDNN. Torch itself calls it only in compiled inference.

    Raises an exception in builds of torch without oneDNN; `faster_here` is False there.
    """
    return torch.ops.mkldnn._linear_pointwise.default(a, b.t(), None, "none", [], "")


def _shape(a: Tensor, b: Tensor) -> Tensor:
    return a.new_empty(a.shape[0], b.shape[1])


_library.impl("product", product, "CPU")
_library.impl("product", _shape, "Meta")


@functools.lru_cache(maxsize=1)
def faster_here() -> bool:
    """Return True if oneDNN is faster on this machine. Times both once, which takes a few milliseconds."""
    if not torch.backends.mkldnn.is_available():
        return False
    rows, width = _TRIAL
    a, b = (torch.ones(n, width, dtype=torch.float32, device="cpu") for n in (rows, width))
    spent: dict[Callable[[Tensor, Tensor], Tensor], float] = {}
    try:
        for _ in range(8):  # alternate and keep the shortest: the machine may be busy
            for multiply in (torch.mm, product):
                began = time.perf_counter()
                multiply(a, b)
                spent[multiply] = min(spent.get(multiply, 1e9), time.perf_counter() - began)
    except Exception:  # a build of torch without oneDNN
        return False
    return spent[torch.mm] > _WORTHWHILE * spent[product]


def rewrite(graph: Graph) -> None:
    """Replace large products in a graph that is about to be compiled."""
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
    # An open size is the number of rows.
    sizes = [size if isinstance(size, int) else _TRIAL[0] for size in (*left.shape, right.shape[1])]
    if result.dtype != torch.float32 or result.device.type != "cpu" or math.prod(sizes) < _LEAST:
        return False
    return min(sizes) >= (_WIDTH if left.stride(1) == 1 else _WIDTH_TURNED)
