"""A training step with PhysicsNeMo's meshless finite differences and its symbolic equations."""
# pyright: reportMissingImports=false

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from harness import serve
from peers.problems import INPUTS, NU, SPATIAL
from peers.torch_step import TorchStep
from physicsnemo.sym.eq.pde import PDE
from physicsnemo.sym.eq.phy_informer import PhysicsInformer
from sympy import Function, Symbol
from torch import Tensor

STEP = 2e-2  # equal to FD's, so that only the cost differs


class Equation(PDE):
    """The residual in PhysicsNeMo's axes x, y, z, with time as the last one."""

    def __init__(self, problem: str):
        self.dim = INPUTS[problem]
        axes = [Symbol(name) for name in "xyz"[: self.dim]]
        u = Function("u")(*axes)
        second = sum(u.diff(axes[i], 2) for i in range(SPATIAL[problem]))
        if problem == "burgers":
            second = u.diff(axes[1]) + u * u.diff(axes[0]) - NU * second
        elif problem == "heat":
            second = u.diff(axes[2]) - second
        self.equations = {"residual": second}


class PhysicsNeMo(TorchStep):
    """Evaluate the network at the centre and at each shifted set of points, as PhysicsNeMo's helpers do."""

    def __init__(self, case: Mapping[str, Any]):
        super().__init__(case)
        if self.problem == "biharmonic" or case["inputs"] > 3:
            raise NotImplementedError("first and second derivatives in at most three dimensions")
        self.informer = PhysicsInformer(
            required_outputs=["residual"],
            equations=Equation(self.problem),
            grad_method="meshless_finite_difference",
            fd_dx=STEP,
        )

    def compute(self) -> Tensor:
        values = {"u": self.model(self.x)}
        for i, name in enumerate("xyz"[: self.x.shape[1]]):
            shift = torch.zeros(self.x.shape[1])
            shift[i] = STEP
            values[f"u>>{name}::1"] = self.model(self.x + shift)
            values[f"u>>{name}::-1"] = self.model(self.x - shift)
        return self.informer.forward(values)["residual"]


if __name__ == "__main__":
    serve(PhysicsNeMo)
