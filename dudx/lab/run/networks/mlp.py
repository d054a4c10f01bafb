"""The plain network: a tanh MLP."""

from __future__ import annotations

import itertools
import math
from typing import Literal

from torch import nn

from dudx.errors import one_of
from dudx.lab.run.networks.rescaling import Bounds, Rescale

Initialisation = Literal["xavier", "torch"]


class MLP(nn.Sequential):
    """A fully connected tanh network; `bounds` rescales its inputs to [-1, 1] first.

    With `spread` above 0 the first layer is drawn that much wider, which lets the network bend everywhere in the domain
    from the start, so often as the spread says. The initialisation is "xavier", with biases 0, or "torch", PyTorch's
    default for linear layers.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int = 1,
        width: int = 128,
        depth: int = 4,
        bounds: Bounds | None = None,
        spread: float = 0.0,
        initialisation: Initialisation = "xavier",
    ):
        hidden = [inputs, *[width] * depth]
        layers: list[nn.Module] = [] if bounds is None else [Rescale(bounds)]
        for fan_in, fan_out in itertools.pairwise(hidden):
            layers += [nn.Linear(fan_in, fan_out), nn.Tanh()]
        super().__init__(*layers, nn.Linear(hidden[-1], outputs))
        if one_of(initialisation, Initialisation, "initialisation") == "xavier":
            _xavier(self)
        if spread:
            widen(next(layer for layer in self if isinstance(layer, nn.Linear)), spread)


def widen(layer: nn.Linear, spread: float) -> None:
    """Draw a first layer so wide that its outputs bend as often as the spread says."""
    nn.init.normal_(layer.weight, std=spread / math.sqrt(layer.in_features))
    nn.init.uniform_(layer.bias, -spread, spread)


def _xavier(network: nn.Module) -> None:
    """Glorot's initialisation, made for tanh; torch's own default starts PINNs from a nearly constant function."""
    for module in network.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_normal_(module.weight)
            nn.init.zeros_(module.bias)


NETWORK = MLP
