"""A training step of a torch network; peers differ only in the computation of the residual."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn


def network(arrays: Mapping[str, np.ndarray]) -> nn.Sequential:
    """Return the tanh network with the weights of the case."""
    layers: list[nn.Module] = []
    for i in range(sum(name.startswith("w") for name in arrays)):
        weight, bias = torch.from_numpy(arrays[f"w{i}"]), torch.from_numpy(arrays[f"b{i}"])
        layer = nn.Linear(weight.shape[1], weight.shape[0])
        layer.weight.data.copy_(weight)
        layer.bias.data.copy_(bias)
        layers += [layer, nn.Tanh()]
    return nn.Sequential(*layers[:-1])


class TorchStep(ABC):
    """A step: the residual's mean square and its gradient in the parameters.

    With "compile" in the case the loss is one graph. The residual for the check is computed without compilation, which
    saves seconds; the check of the gradient covers the graph.
    """

    def __init__(self, case: Mapping[str, Any]):
        arrays = dict(np.load(case["file"]))
        self.problem = str(case["problem"])
        self.x = torch.from_numpy(arrays.pop("x"))
        self.model = network(arrays)
        compiled = bool(case.get("compile"))
        self.loss = torch.compile(self._mean_square, dynamic=False, fullgraph=True) if compiled else self._mean_square

    @abstractmethod
    def compute(self) -> Tensor:
        """Return the residual at all points."""

    def _mean_square(self) -> Tensor:
        return self.compute().square().mean()

    def residual(self) -> np.ndarray:
        return self.compute().detach().numpy()

    def gradient(self) -> np.ndarray:
        self.step()
        return self.collected()

    def collected(self) -> np.ndarray:
        """Return the gradients of the parameters as one row."""
        # A residual of derivatives alone does not depend on the last bias, which may have no gradient.
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in self.model.parameters()]
        return torch.cat([gradient.reshape(-1) for gradient in gradients]).numpy()

    def step(self) -> None:
        self.model.zero_grad(set_to_none=True)
        self.loss().backward()
