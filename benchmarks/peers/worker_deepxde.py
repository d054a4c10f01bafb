"""A training step with DeepXDE's lazy Jacobians and Hessians, in reverse or forward mode."""
# pyright: reportMissingImports=false

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from harness import serve
from peers.problems import NU, SPATIAL
from peers.torch_step import TorchStep
from torch import Tensor

os.environ["DDE_BACKEND"] = "pytorch"

import deepxde  # imported here, because it reads the backend on import


class DeepXDE(TorchStep):
    """In forward mode DeepXDE passes pairs of a tensor and the function that made it; in reverse mode tensors."""

    def __init__(self, case: Mapping[str, Any]):
        super().__init__(case)
        self.forward_mode = case["mode"] == "forward"
        deepxde.config.set_default_autodiff(case["mode"])

    def compute(self) -> Tensor:
        deepxde.gradients.clear()
        x = self.x.detach().requires_grad_(True)
        u = self.model(x)
        y = (u, self.model) if self.forward_mode else u
        if self.problem == "biharmonic":
            xx, yy = self._hessian(y, x, 0), self._hessian(y, x, 1)
            return (
                self._value(self._hessian(xx, x, 0))
                + 2 * self._value(self._hessian(xx, x, 1))
                + self._value(self._hessian(yy, x, 1))
            )
        laplacian = self._value(self._hessian(y, x, 0))
        for i in range(1, SPATIAL[self.problem]):
            laplacian = laplacian + self._value(self._hessian(y, x, i))
        if self.problem == "burgers":
            return self._first(y, x, 1) + u * self._first(y, x, 0) - NU * laplacian
        return self._first(y, x, 2) - laplacian if self.problem == "heat" else laplacian

    @staticmethod
    def _hessian(y: Any, x: Tensor, i: int) -> Any:
        return deepxde.grad.hessian(y, x, i=i, j=i)

    def _first(self, y: Any, x: Tensor, j: int) -> Tensor:
        return self._value(deepxde.grad.jacobian(y, x, i=0, j=j))

    def _value(self, result: Any) -> Tensor:
        return result[0] if self.forward_mode else result


if __name__ == "__main__":
    serve(DeepXDE)
