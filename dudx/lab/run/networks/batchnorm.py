"""An MLP with batch normalisation."""

from __future__ import annotations

from torch import nn

from dudx.lab.run.networks.rescaling import Bounds, Rescale


class BatchNormMLP(nn.Sequential):
    """An MLP whose first layer is batch-normalised, so that in training mode samples influence each other."""

    def __init__(
        self, inputs: int, outputs: int = 1, width: int = 64, bounds: Bounds | None = None, spread: float = 0.0
    ):
        norm = nn.BatchNorm1d(width)
        super().__init__(
            nn.Identity() if bounds is None else Rescale(bounds),
            nn.Linear(inputs, width),
            norm,
            nn.Tanh(),
            nn.Linear(width, width),
            nn.Tanh(),
            nn.Linear(width, outputs),
        )
        if spread:
            # Whatever the first layer is drawn like, the norm makes it one wide: so it is the norm that is wider.
            nn.init.constant_(norm.weight, spread)
            nn.init.uniform_(norm.bias, -spread, spread)


NETWORK = BatchNormMLP
