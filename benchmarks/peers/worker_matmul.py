"""Time only the matrix products that a method needs, as a lower bound of its time.

S rows per point pass through the layers forward, and backward for the gradients of each layer's input and weights,
without activation functions, stencils or overhead. `problems.streams` gives S per method.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from harness import serve
from peers.problems import streams
from peers.torch_step import network

BLOCK = 4096


class Products:
    """Matrix products in blocks that fit into the cache, written to preallocated buffers."""

    def __init__(self, case: Mapping[str, Any]):
        arrays = dict(np.load(case["file"]))
        points = torch.from_numpy(arrays.pop("x"))
        rows = streams(case["method"], case["problem"]) * len(points)
        self.weights = [p.detach() for p in network(arrays).parameters() if p.ndim == 2]
        # Taylor's first layer multiplies the points only: its directions are columns of the weights.
        first = len(points) if case["method"] == "Taylor" else rows
        self.rows = [first] + [rows] * (len(self.weights) - 1)
        self.buffers = {width: torch.randn(2, BLOCK, width) for w in self.weights for width in w.shape}
        self.gradients = [torch.empty_like(w) for w in self.weights]

    def residual(self) -> np.ndarray:
        return np.empty(0)

    def gradient(self) -> np.ndarray:
        return np.empty(0)

    def step(self) -> None:
        for i, (w, dw, rows) in enumerate(zip(self.weights, self.gradients, self.rows, strict=True)):
            below, above = self.buffers[w.shape[1]], self.buffers[w.shape[0]]
            dw.zero_()
            for start in range(0, rows, BLOCK):
                part = slice(0, min(BLOCK, rows - start))
                torch.mm(below[0, part], w.T, out=above[1, part])
                dw.addmm_(above[0, part].T, below[0, part])
                if i:  # the points themselves need no gradient
                    torch.mm(above[0, part], w, out=below[1, part])


if __name__ == "__main__":
    serve(Products)
