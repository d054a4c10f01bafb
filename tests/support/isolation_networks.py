"""Networks that mix the samples of a batch, by layers and by reductions written out."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dudx import AD, D, Laplacian, Taylor

OPERATORS = [D(), D(0), D(1), D(0, 1), Laplacian()]
EXACT = pytest.mark.parametrize("engine", [AD(), Taylor()], ids=["AD", "Taylor"])
BOTH = pytest.mark.parametrize("exact", [False, True], ids=["first-hand", "exact"])


class BatchNorm(nn.Module):
    def __init__(self, inputs: int, **options: object):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(inputs, 16),
            nn.BatchNorm1d(16, **options),
            nn.Tanh(),
            nn.Linear(16, 16),
            nn.Tanh(),
            nn.Linear(16, 1),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class Positions(nn.Module):
    """Batch norm of samples that have several positions, (B, channels, length) or (B, channels, height, width)."""

    def __init__(self, inputs: int, axes: int):
        super().__init__()
        self.embed, self.head, self.axes = nn.Linear(inputs, 24), nn.Linear(24, 1), axes
        self.norm = nn.BatchNorm1d(4) if axes == 1 else nn.BatchNorm2d(4)

    def forward(self, x: Tensor) -> Tensor:
        h = self.embed(x).reshape(-1, 4, 6) if self.axes == 1 else self.embed(x).reshape(-1, 4, 2, 3)
        return self.head(torch.tanh(self.norm(torch.sin(h))).flatten(1))


class Attention(nn.Module):
    """Attention over the batch by nn.MultiheadAttention, with or without the weights it can return."""

    def __init__(self, inputs: int, need_weights: bool = False, heads: int = 2):
        super().__init__()
        self.embed, self.norm = nn.Linear(inputs, 16), nn.LayerNorm(16)
        self.attention = nn.MultiheadAttention(16, heads, batch_first=True)
        self.head = nn.Sequential(nn.Tanh(), nn.Linear(16, 1))
        self.need_weights = need_weights

    def forward(self, x: Tensor) -> Tensor:
        h = self.embed(x)
        tokens = self.norm(h).unsqueeze(0)
        return self.head(h + self.attention(tokens, tokens, tokens, need_weights=self.need_weights)[0].squeeze(0))


def _halves(h: Tensor) -> Tensor:
    return h.unflatten(1, (2, 4))


def _by_variance_and_mean(variance_and_mean: tuple[Tensor, Tensor], h: Tensor) -> Tensor:
    return (h - variance_and_mean[1]) / (variance_and_mean[0] + 0.1)


#: Reductions over the batch written out, in the many ways that torch offers.
BY_HAND = {
    "mean and deviation": lambda h: (h - h.mean(0)) / (h.std(0) + 0.1),
    "kept axis": lambda h: (h - torch.mean(h, dim=0, keepdim=True)) * torch.var(h, 0, correction=0, keepdim=True),
    "sum, numpy's name": lambda h: torch.tanh(h + 0.1 * h.sum(axis=0)),
    "one axis": lambda h: h * (h[:, 0] - h[:, 0].mean(0)).unsqueeze(1),
    "a count": lambda h: h / (1 + (h > 0).sum(0)),
    "over everything": lambda h: (h - h.mean()) / h.std(),
    "biased variance of everything": lambda h: h / (0.1 + h.var(False)),
    "two axes, kept": lambda h: (_halves(h) / _halves(h).std((0, 2), keepdim=True)).flatten(1),
    "two axes": lambda h: (_halves(h) - _halves(h).mean((0, 1))).flatten(1),
    "var_mean": lambda h: _by_variance_and_mean(torch.var_mean(h, 0, correction=0), h),
    "std_mean": lambda h: _by_variance_and_mean(torch.std_mean(h, dim=0), h),
    "softmax": lambda h: h * torch.softmax(h, dim=0),
    "log_softmax": lambda h: h * F.log_softmax(h, 0),
    "logsumexp": lambda h: h - torch.logsumexp(h, 0),
    "logsumexp of everything": lambda h: h - h.logsumexp((0, 1), keepdim=True),
    "amax": lambda h: h - h.amax(0),
    "amin": lambda h: h * torch.amin(h, dim=0, keepdim=True),
    "max": lambda h: h - h.max(0).values,
    "min": lambda h: h - torch.min(h, 0)[0],
    "norm": lambda h: h / h.norm(dim=0),
    "sum of sizes": lambda h: h / torch.norm(h, 1, 0),
    "vector_norm": lambda h: h / torch.linalg.vector_norm(h, dim=0, keepdim=True),
    "vector_norm of third order": lambda h: h / torch.linalg.vector_norm(h, 3, dim=0),
    "largest size": lambda h: h / torch.linalg.vector_norm(h, math.inf, dim=0),
    "norm of everything": lambda h: h / torch.linalg.norm(h),
    "normalize": lambda h: F.normalize(h, dim=0),
    "each by itself": lambda h: h.softmax(1) + h.mean(1, keepdim=True) + F.normalize(h) + h.var(1, keepdim=True),
}


class ByHand(nn.Module):
    def __init__(self, inputs: int, name: str):
        super().__init__()
        self.a, self.b, self.mix = nn.Linear(inputs, 8), nn.Linear(8, 1), BY_HAND[name]

    def forward(self, x: Tensor) -> Tensor:
        return self.b(torch.tanh(self.mix(torch.sin(self.a(x)))))


class Plain(nn.Module):
    def __init__(self, inputs: int):
        super().__init__()
        self.a = nn.Sequential(
            nn.Linear(inputs, 16), nn.LayerNorm(16), nn.Tanh(), nn.GroupNorm(2, 16), nn.Linear(16, 1)
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.a(x)


NETWORKS = {
    "batch norm": BatchNorm,
    "batch norm without scale": lambda inputs: BatchNorm(inputs, affine=False),
    "batch norm of sequences": lambda inputs: Positions(inputs, 1),
    "batch norm of pictures": lambda inputs: Positions(inputs, 2),
    "attention": Attention,
    "attention with weights": lambda inputs: Attention(inputs, need_weights=True),
    "one head": lambda inputs: Attention(inputs, heads=1),
    "not coupled": Plain,
    **{name: lambda inputs, name=name: ByHand(inputs, name) for name in BY_HAND},
}


def made(name: str, inputs: int = 2, size: int = 24, dtype: torch.dtype = torch.float64) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    model = NETWORKS[name](inputs).to(dtype)
    return model, (torch.rand(size, inputs, dtype=torch.float64) * 4 - 2).to(dtype)


def two_batch_norms() -> nn.Module:
    torch.manual_seed(0)
    layers = [nn.Linear(2, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Linear(16, 16), nn.BatchNorm1d(16), nn.Tanh()]
    return nn.Sequential(*layers, nn.Linear(16, 1)).double()
