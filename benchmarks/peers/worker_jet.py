"""A training step with torch-jet's collapsed Taylor mode, a function of one point under vmap."""
# pyright: reportMissingImports=false

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from harness import serve
from jet import bilaplacian, capture_graph, common_subexpression_elimination, jet, laplacian
from peers.problems import NU, SPATIAL
from peers.torch_step import TorchStep
from torch import Tensor
from torch.func import vmap


class TorchJet(TorchStep):
    """A step whose residual is traced once and simplified, as in torch-jet's own benchmarks."""

    def __init__(self, case: Mapping[str, Any]):
        super().__init__(case)
        point = self.x[0]
        graph, _ = capture_graph(self._one(point), (point,))
        common_subexpression_elimination(graph.graph)
        graph.recompile()
        self.batched = vmap(graph)

    def compute(self) -> Tensor:
        return self.batched(self.x)

    def _one(self, point: Tensor) -> Callable[[Tensor], Tensor]:
        if self.problem == "biharmonic":
            return bilaplacian(self.model, (point,))
        if self.problem == "burgers":
            return self._burgers(point)
        if self.problem == "heat":
            return self._heat(point)
        return laplacian(self.model, (point,))

    def _burgers(self, point: Tensor) -> Callable[[Tensor], Tensor]:
        series = jet(self.model, (point,))
        along_x, along_t = torch.eye(2)

        def residual(x: Tensor) -> Tensor:
            u, u_x, u_xx = series((x, along_x, torch.zeros_like(x)))
            _, u_t = series((x, along_t))
            return u_t + u * u_x - NU * u_xx

        return residual

    def _heat(self, point: Tensor) -> Callable[[Tensor], Tensor]:
        axes = torch.eye(3)
        spatial = axes[: SPATIAL["heat"]]
        second = laplacian(self.model, (point,), weighting=(lambda x, v: v @ spatial, len(spatial)))
        series = jet(self.model, (point,))

        def residual(x: Tensor) -> Tensor:
            _, u_t = series((x, axes[2]))
            return u_t - second(x)

        return residual


if __name__ == "__main__":
    serve(TorchJet)
