"""A training step with torch.autograd, as most physics-informed networks are written."""

from __future__ import annotations

import torch
from harness import serve
from peers.problems import NU, SPATIAL
from peers.torch_step import TorchStep
from torch import Tensor


def gradient(u: Tensor, x: Tensor) -> Tensor:
    """Return the gradient of each point's value with respect to the point."""
    return torch.autograd.grad(u, x, torch.ones_like(u), create_graph=True)[0]


class Raw(TorchStep):
    """A step with one gradient of u and one per first derivative that is differentiated again."""

    def compute(self) -> Tensor:
        x = self.x.detach().requires_grad_(True)
        u = self.model(x)
        if self.problem == "biharmonic":
            inner = self._laplacian(gradient(u, x), x)
            return self._laplacian(gradient(inner, x), x)
        du = gradient(u, x)
        laplacian = self._laplacian(du, x)
        if self.problem == "burgers":
            return du[:, 1:2] + u * du[:, 0:1] - NU * laplacian
        return du[:, 2:3] - laplacian if self.problem == "heat" else laplacian

    def _laplacian(self, du: Tensor, x: Tensor) -> Tensor:
        columns = [gradient(du[:, i : i + 1], x)[:, i : i + 1] for i in range(SPATIAL[self.problem])]
        return torch.stack(columns).sum(0)


if __name__ == "__main__":
    serve(Raw)
