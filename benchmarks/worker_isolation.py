"""A training step of a network whose samples influence each other, by one method of differentiation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from harness import serve
from torch import Tensor, nn

import dudx
from dudx.lab.run.networks import networks

#: Per method: the model made from the network and its batch in every step, and the engine.
WAYS: dict[str, tuple[Callable[[nn.Module, Tensor], Any], dudx.Engine]] = {
    "batched AD": (lambda model, x: model, dudx.AD(coupled="ignore")),
    "isolated AD": (dudx.isolate, dudx.AD()),
    # Near the best step of an untrained network in single precision, so that only the cost differs.
    "isolated FD": (dudx.isolate, dudx.FD(step=5e-2)),
    "isolated Taylor": (dudx.isolate, dudx.Taylor()),
    "per-sample AD": (lambda model, x: model, dudx.PerSampleAD()),
    "per-sample loop": (lambda model, x: model, dudx.PerSampleAD(method="loop")),
}


class IsolationStep:
    """The mean square of the Laplacian and its gradient with respect to the parameters."""

    def __init__(self, case: Mapping[str, Any]):
        torch.manual_seed(0)
        self.model = networks()[case["network"]](2)
        self.x = 2 * torch.rand(case["batch"], 2) - 1
        self.pointwise, self.engine = WAYS[case["way"]]

    def laplacian(self) -> Tensor:
        return dudx.evaluate(self.pointwise(self.model, self.x), self.x, dudx.Laplacian(), self.engine)

    def residual(self) -> np.ndarray:
        with torch.no_grad():
            return self.laplacian().numpy()

    def gradient(self) -> np.ndarray:
        self.step()
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in self.model.parameters()]
        return torch.cat([gradient.flatten() for gradient in gradients]).numpy()

    def step(self) -> None:
        self.model.zero_grad(set_to_none=True)
        self.laplacian().square().mean().backward()


if __name__ == "__main__":
    serve(IsolationStep)
