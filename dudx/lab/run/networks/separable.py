"""A network for each axis, and the sum of their products."""

from __future__ import annotations

from torch import Tensor, nn

from dudx.lab.run.networks.mlp import MLP
from dudx.lab.run.networks.rescaling import Bounds


class Separable(nn.Module):
    """u(x) = Σ_r Π_i f_i,r(x_i): a small network for each axis, and as many products as it is wide.

    On a grid `dudx.Separated` takes its derivatives axis by axis; it works with every other engine at any points.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int = 1,
        width: int = 32,
        depth: int = 3,
        bounds: Bounds | None = None,
        spread: float = 0.0,
    ):
        super().__init__()
        self.rank, self.outputs = width, outputs
        own = [None if bounds is None else ((bounds[0][i],), (bounds[1][i],)) for i in range(inputs)]
        self.factors = nn.ModuleList(MLP(1, width * outputs, width, depth, box, spread) for box in own)
        last = next(layer for layer in reversed(list(self.factors[0].modules())) if isinstance(layer, nn.Linear))
        nn.init.normal_(last.weight, std=width**-0.5 * (2 / (width + width * outputs)) ** 0.5)

    def forward(self, x: Tensor) -> Tensor:
        product = self.factors[0](x[:, :1])
        for number, factor in enumerate(list(self.factors)[1:], 1):
            product = product * factor(x[:, number : number + 1])
        return product.reshape(-1, self.rank, self.outputs).sum(1)


NETWORK = Separable
