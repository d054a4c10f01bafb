"""An MLP with attention over the batch."""

from __future__ import annotations

from torch import Tensor, nn

from dudx.lab.run.networks.mlp import widen
from dudx.lab.run.networks.rescaling import Bounds, Rescale


class AttentionMLP(nn.Module):
    """An MLP with a self-attention block in which the batch is the sequence: every sample attends to all others."""

    def __init__(
        self, inputs: int, outputs: int = 1, width: int = 64, bounds: Bounds | None = None, spread: float = 0.0
    ):
        super().__init__()
        self.rescale = nn.Identity() if bounds is None else Rescale(bounds)
        self.embed = nn.Linear(inputs, width)
        self.norm = nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, num_heads=1, batch_first=True)
        self.head = nn.Sequential(nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, outputs))
        if spread:
            widen(self.embed, spread)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.embed(self.rescale(x))
        tokens = self.norm(hidden).unsqueeze(0)
        attended, _ = self.attention(tokens, tokens, tokens, need_weights=False)
        return self.head(hidden + attended.squeeze(0))


NETWORK = AttentionMLP
