"""The networks of the experiments: a tanh MLP, and the two whose samples influence each other."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from dudx.errors import InputError

Bounds = tuple[Sequence[float], Sequence[float]]


class Rescale(nn.Module):
    """Map each input from its range to [-1, 1]."""

    low: Tensor
    high: Tensor

    def __init__(self, bounds: Bounds):
        super().__init__()
        low, high = (torch.as_tensor(end, dtype=torch.get_default_dtype()) for end in bounds)
        if low.shape != high.shape or not bool((low < high).all()):
            raise InputError(f"The bounds to rescale from must be two corners, the lower one first; got {bounds!r}.")
        self.register_buffer("low", low)
        self.register_buffer("high", high)

    def forward(self, x: Tensor) -> Tensor:
        return (2 * x - (self.low + self.high)) / (self.high - self.low)


class MLP(nn.Sequential):
    """A fully connected tanh network; `bounds` rescales its inputs to [-1, 1] first."""

    def __init__(self, inputs: int, outputs: int = 1, width: int = 128, depth: int = 4, bounds: Bounds | None = None):
        hidden = [inputs, *[width] * depth]
        layers: list[nn.Module] = [] if bounds is None else [Rescale(bounds)]
        for fan_in, fan_out in itertools.pairwise(hidden):
            layers += [nn.Linear(fan_in, fan_out), nn.Tanh()]
        super().__init__(*layers, nn.Linear(hidden[-1], outputs))
        _xavier(self)


class BatchNormMLP(nn.Sequential):
    """An MLP whose first layer is batch-normalised, so that in training mode samples influence each other."""

    def __init__(self, inputs: int, outputs: int = 1, width: int = 64, bounds: Bounds | None = None):
        super().__init__(
            nn.Identity() if bounds is None else Rescale(bounds),
            nn.Linear(inputs, width),
            nn.BatchNorm1d(width),
            nn.Tanh(),
            nn.Linear(width, width),
            nn.Tanh(),
            nn.Linear(width, outputs),
        )


class AttentionMLP(nn.Module):
    """An MLP with a self-attention block in which the batch is the sequence: every sample attends to all others."""

    def __init__(self, inputs: int, outputs: int = 1, width: int = 64, bounds: Bounds | None = None):
        super().__init__()
        self.rescale = nn.Identity() if bounds is None else Rescale(bounds)
        self.embed = nn.Linear(inputs, width)
        self.norm = nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, num_heads=1, batch_first=True)
        self.head = nn.Sequential(nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, outputs))

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.embed(self.rescale(x))
        tokens = self.norm(hidden).unsqueeze(0)
        attended, _ = self.attention(tokens, tokens, tokens, need_weights=False)
        return self.head(hidden + attended.squeeze(0))


def _xavier(network: nn.Module) -> None:
    """Glorot's initialisation, made for tanh; torch's own default starts PINNs from a nearly constant function."""
    for module in network.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_normal_(module.weight)
            nn.init.zeros_(module.bias)


#: By name, for settings; `width` and `bounds` are given to all, `depth` to the plain MLP.
NETWORKS: dict[str, Callable[..., nn.Module]] = {"mlp": MLP, "batchnorm": BatchNormMLP, "attention": AttentionMLP}
