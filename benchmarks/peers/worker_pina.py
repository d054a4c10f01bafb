"""A training step with PINA's operators on labelled tensors."""
# pyright: reportMissingImports=false

from __future__ import annotations

from typing import Any

from harness import serve
from peers.problems import NU, SPATIAL
from peers.torch_step import TorchStep
from pina import LabelTensor
from pina.operator import grad, laplacian
from torch import Tensor


class Pina(TorchStep):
    """A step whose labels are x0, x1, … in the order of the columns."""

    def compute(self) -> Tensor:
        labels = [f"x{i}" for i in range(self.x.shape[1])]
        x = LabelTensor(self.x, labels).requires_grad_(True)
        u = self.model(x)
        u.labels = ["u"]
        return self._residual(u, x, labels).as_subclass(Tensor)

    def _residual(self, u: Any, x: Any, labels: list[str]) -> Any:
        if self.problem == "biharmonic":
            return laplacian(laplacian(u, x), x)
        second = laplacian(u, x, components=["u"], d=labels[: SPATIAL[self.problem]])
        if self.problem == "burgers":
            first = grad(u, x, components=["u"], d=labels)
            return first.extract("dudx1") + u * first.extract("dudx0") - NU * second
        if self.problem == "heat":
            return grad(u, x, components=["u"], d=["x2"]) - second
        return second


if __name__ == "__main__":
    serve(Pina)
