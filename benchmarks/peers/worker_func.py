"""A training step with torch.func: the Hessian under vmap, or forward derivatives of forward derivatives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from harness import serve
from peers.problems import NU, SPATIAL
from peers.torch_step import TorchStep
from torch import Tensor
from torch.func import hessian, jacrev, jvp, vmap

Function = Callable[[Tensor], Tensor]


class Hessian(TorchStep):
    """The Hessian of a function of one point, under vmap."""

    def compute(self) -> Tensor:
        return vmap(self._one)(self.x)

    def _u(self, x: Tensor) -> Tensor:
        return self.model(x).squeeze(-1)

    def _one(self, x: Tensor) -> Tensor:
        if self.problem == "biharmonic":
            return self._laplacian(lambda y: self._laplacian(self._u, y), x)
        laplacian = self._laplacian(self._u, x)
        if self.problem == "burgers":
            du = jacrev(self._u)(x)
            return du[1] + self._u(x) * du[0] - NU * laplacian
        return jacrev(self._u)(x)[2] - laplacian if self.problem == "heat" else laplacian

    def _laplacian(self, f: Function, x: Tensor) -> Tensor:
        """Return the trace of the Hessian in space, at fixed time."""
        n = SPATIAL[self.problem]
        if n == len(x):
            return hessian(f)(x).trace()
        return hessian(lambda y: f(torch.cat([y, x[n:]])))(x[:n]).trace()


class Forward(TorchStep):
    """Nested jvp along all axes at once, on the whole batch."""

    def compute(self) -> Tensor:
        if self.problem == "biharmonic":
            return self._laplacian(lambda x: self._laplacian(self.model, x), self.x)
        if self.problem == "burgers":
            along_x, along_t = torch.eye(2)
            u, u_x, u_xx = self._along(self.model, self.x, along_x)
            return self._first(along_t) + u * u_x - NU * u_xx
        laplacian = self._laplacian(self.model, self.x)
        return self._first(torch.eye(3)[2]) - laplacian if self.problem == "heat" else laplacian

    def _first(self, direction: Tensor) -> Tensor:
        return jvp(self.model, (self.x,), (direction.expand_as(self.x),))[1]

    @staticmethod
    def _along(f: Function, x: Tensor, direction: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the value and the first and second derivative along the direction."""
        tangent = (direction.expand_as(x),)
        nested: Any = jvp(lambda y: jvp(f, (y,), tangent), (x,), tangent)
        (value, first), (_, second) = nested
        return value, first, second

    def _laplacian(self, f: Function, x: Tensor) -> Tensor:
        directions = torch.eye(x.shape[1])[: SPATIAL[self.problem]]
        return vmap(lambda direction: self._along(f, x, direction)[2])(directions).sum(0)


if __name__ == "__main__":
    serve(lambda case: Hessian(case) if case["mode"] == "hessian" else Forward(case))
