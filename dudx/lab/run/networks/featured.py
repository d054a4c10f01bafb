"""An MLP of what is known of the solution."""

from __future__ import annotations

from torch import Tensor, nn

from dudx.lab.features import Features, HardConstraint
from dudx.lab.run.networks.mlp import MLP
from dudx.lab.run.networks.rescaling import Bounds


class FeaturedMLP(nn.Module):
    """A tanh network that sees the problem's features and keeps its hard values; a plain one where there are none."""

    def __init__(
        self,
        inputs: int,
        outputs: int = 1,
        width: int = 32,
        depth: int = 3,
        bounds: Bounds | None = None,
        features: Features | None = None,
        hard: HardConstraint | None = None,
        spread: float = 0.0,
    ):
        super().__init__()
        self.features, self.hard = features, hard
        if features is None:
            self.network = MLP(inputs, outputs, width, depth, bounds, spread)
        else:
            self.network = MLP(features.columns, outputs, width, depth, spread=spread)

    def forward(self, x: Tensor) -> Tensor:
        out = self.network(x if self.features is None else self.features(x))
        return out if self.hard is None else self.hard(x, out)


NETWORK = FeaturedMLP
