"""The pointwise function that stands for a network in each part of the loss, if its samples influence each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from dudx.backend.torch_classes import BatchNorm
from dudx.coupling.isolation import frozen, isolate
from dudx.coupling.running_statistics import running_statistics
from dudx.errors import InputError
from dudx.network.coupling_check import coupled
from dudx.network.model_checks import Model

#: Treatment of samples that influence each other.
Way = Literal["isolate", "fixed", "running", "ignore"]


class Views:
    """Pointwise functions of a network in training and in evaluation.

    A network without influence between samples stands for itself. Any other one is, by the way chosen:

    - isolate: seen against the batch in the interior, which is another one after each drawing. The points of that batch
      each take their own place in it, and those of a condition take nobody's.
    - fixed: seen against `at_rest`, the same points all the time. So it is one function from beginning to end, and
      exactly that function is trained and evaluated.
    - running: normalised by running statistics, which follow each new batch in the interior; batch norm only.
    - ignore: itself, whatever derivatives are then.

    In evaluation mode the context is `at_rest`, unless the network is pointwise by then, as with batch norm.
    """

    def __init__(self, model: nn.Module, at_rest: Tensor, way: Way):
        self.model, self.at_rest = model, at_rest
        self.way: Way = way if coupled(model, at_rest) else "ignore"
        #: The last batch that updated the running statistics.
        self._followed: Tensor | None = None
        if self.way == "running":
            with running_statistics(model):  # which says so where there are none
                if coupled(model, at_rest):
                    raise InputError(
                        "Running statistics do not make the samples of this network independent, because it is not "
                        "only batch norm that mixes them; use coupled = isolate or fixed."
                    )

    @property
    def isolating(self) -> bool:
        """True if training isolates samples that influence each other."""
        return self.way != "ignore"

    def training(self, points: Sequence[Tensor]) -> list[Model]:
        """Return a function for each part of the loss, the interior first."""
        interior, *conditions = points
        if self.way == "isolate":
            views: list[Model] = [isolate(self.model, interior)]  # which alone updates running statistics
            return views + [frozen(self.model, interior, update_statistics=False) for _ in conditions]
        if self.way == "running" and (self._followed is None or not torch.equal(interior, self._followed)):
            self._followed = interior
            self.model.train()
            with running_statistics(self.model, interior):
                pass
        return [self.anywhere()] * len(points)

    def calibration(self) -> Model:
        """Return the function for whose derivatives steps are calibrated, at the points of the context."""
        if self.way == "isolate":
            return isolate(self.model, self.at_rest, update_statistics=False)
        return self.anywhere()

    def anywhere(self) -> Model:
        """Return the function at any points during training."""
        if self.way == "running":
            for layer in _norms(self.model):
                layer.eval()
            return self.model
        return self.model if self.way == "ignore" else frozen(self.model, self.at_rest, update_statistics=False)

    def evaluation(self) -> Model:
        """Return the function of the trained network, in evaluation mode."""
        if self.way == "fixed":
            _settle(self.model, self.at_rest)
        self.model.eval()
        if coupled(self.model, self.at_rest):
            return frozen(self.model, self.at_rest, update_statistics=False)
        return self.model

    def trained(self) -> nn.Module:
        """Return the trained network as a module of single points."""
        return self.model if self.evaluation() is self.model else InContext(self.model, self.at_rest)

    def state_dict(self) -> dict[str, Tensor | None]:
        return {"followed": self._followed}

    def load_state_dict(self, state: Mapping[str, Any], /) -> None:
        self._followed = state["followed"]


class InContext(nn.Module):
    """A network whose samples influence each other, as a function of single points against a fixed context."""

    context: Tensor

    def __init__(self, model: nn.Module, context: Tensor):
        super().__init__()
        self.model = model
        self.register_buffer("context", context)

    def seen(self) -> Model:
        """Return the function that engines differentiate."""
        return frozen(self.model, self.context, update_statistics=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.seen()(x)


def _norms(model: nn.Module) -> list[BatchNorm]:
    return [module for module in model.modules() if isinstance(module, BatchNorm)]


def _settle(model: nn.Module, context: Tensor) -> None:
    """Set the running statistics to those of the context, as training computes them."""
    layers = [layer for layer in _norms(model) if layer.running_mean is not None]
    model.eval()  # so that nothing is drawn at random
    for layer in layers:
        layer.train()
    hooks = [layer.register_forward_hook(_keep_statistics) for layer in layers]
    try:
        with torch.no_grad():
            model(context)
    finally:
        for hook in hooks:
            hook.remove()


def _keep_statistics(layer: BatchNorm, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    axes = [axis for axis in range(output.ndim) if axis != 1]
    # The biased variance, as in training; the layer's own running variance is unbiased.
    layer.running_var, layer.running_mean = torch.var_mean(inputs[0], axes, correction=0)
