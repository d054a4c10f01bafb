"""How a network is seen in each part of the loss: as it is or, where its samples influence each other, pointwise."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from dudx.checks import Model
from dudx.coupling.isolation import frozen, isolate
from dudx.network.detect import coupled


class Views:
    """The function of a point that a network stands for while it is trained, and when it is asked.

    A network without influence between samples stands for itself. Any other one sees every point against a context,
    the batch in the interior: the points of that batch each take their own place in it, and those of a condition take
    nobody's. In evaluation mode the context is `at_rest`, unless the network is pointwise by then, as with batch norm.

    With `isolating` off, training sees the network as it is: for engines that know how to handle it, or ignore it.
    """

    def __init__(self, model: nn.Module, at_rest: Tensor, isolating: bool):
        self.model, self.at_rest = model, at_rest
        self.isolating = isolating and coupled(model, at_rest)

    def training(self, points: Sequence[Tensor]) -> list[Model]:
        """A function for each part of the loss, the interior first."""
        if not self.isolating:
            return [self.model] * len(points)
        interior, *conditions = points
        views: list[Model] = [isolate(self.model, interior)]  # which alone updates running statistics
        return views + [frozen(self.model, interior, update_statistics=False) for _ in conditions]

    def calibration(self) -> Model:
        """The function whose derivatives steps are calibrated for, at the points of the context."""
        return isolate(self.model, self.at_rest, update_statistics=False) if self.isolating else self.model

    def anywhere(self) -> Model:
        """The function at any points while the network is trained, seen against the context at rest."""
        return frozen(self.model, self.at_rest, update_statistics=False) if self.isolating else self.model

    def evaluation(self) -> Model:
        """The function that the trained network is, its module being in evaluation mode."""
        if coupled(self.model, self.at_rest):
            return frozen(self.model, self.at_rest, update_statistics=False)
        return self.model
