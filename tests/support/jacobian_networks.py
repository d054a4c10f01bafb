"""Networks that use their parameters in many ways, most of them known to the rules of the Jacobian."""

from __future__ import annotations

import torch
from helpers import mlp
from torch import nn
from torch.nn import functional as F


class FourierFeatures(nn.Module):
    def __init__(self):
        super().__init__()
        self.matrix = nn.Parameter(torch.randn(2, 5))
        self.head = nn.Linear(10, 1)

    def forward(self, x):
        z = torch.matmul(x, self.matrix)
        return self.head(torch.cat([torch.sin(z), torch.cos(z)], dim=1))


class LearnedScale(nn.Module):
    """tanh(a x), one a for all units of a layer, and one for each unit of the next."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.last = nn.Linear(2, 6), nn.Linear(6, 6), nn.Linear(6, 1)
        self.common, self.own = nn.Parameter(torch.tensor(1.3)), nn.Parameter(torch.rand(6) + 0.5)

    def forward(self, x):
        x = torch.tanh(self.common * self.first(x))
        return self.last(torch.tanh(self.second(x) * self.own))


class Convolution(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.conv, self.last = nn.Linear(2, 8), nn.Conv1d(1, 3, 3), nn.Linear(18, 1)

    def forward(self, x):
        x = torch.tanh(self.first(x)).unsqueeze(1)
        return self.last(torch.tanh(self.conv(x)).flatten(1))


class ConstantIndex(nn.Module):
    """A row of a table, as a network that solves several cases has one for each of them."""

    def __init__(self):
        super().__init__()
        self.table, self.first, self.last = nn.Embedding(4, 6), nn.Linear(2, 6), nn.Linear(6, 1)

    def forward(self, x):
        return self.last(torch.tanh(self.first(x) + self.table(torch.tensor(2, device=x.device))))


class Tokens(nn.Module):
    """Attention within each sample, over three tokens made of it and one that all samples share."""

    def __init__(self):
        super().__init__()
        self.first, self.attention = nn.Linear(2, 12), nn.MultiheadAttention(4, 2, batch_first=True)
        self.token, self.last = nn.Parameter(torch.randn(1, 1, 4)), nn.Linear(16, 1)

    def forward(self, x):
        tokens = torch.tanh(self.first(x)).reshape(x.shape[0], 3, 4)
        tokens = torch.cat([tokens, self.token.expand(x.shape[0], 1, 4)], dim=1)
        out, _ = self.attention(tokens, tokens, tokens, need_weights=False)
        return self.last(torch.tanh(out).flatten(1))


class Tied(nn.Module):
    """A network with one matrix used three times: unchanged, transposed, and squared elementwise."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(2, 5), nn.Linear(5, 1)
        self.matrix = nn.Parameter(torch.randn(5, 5) / 2)

    def forward(self, x):
        x = torch.tanh(self.first(x))
        x = torch.tanh(torch.matmul(x, self.matrix))
        x = torch.tanh(F.linear(x, self.matrix))
        return self.last(torch.tanh(F.linear(x, self.matrix * self.matrix)))


class Factorised(nn.Module):
    """A weight that is exp(s) times V, and one normalised by torch's own parametrisation."""

    def __init__(self):
        super().__init__()
        self.s, self.v, self.bias = (
            nn.Parameter(torch.randn(7, 1) / 3),
            nn.Parameter(torch.randn(7, 2)),
            nn.Parameter(torch.randn(7)),
        )
        self.normed = nn.utils.parametrizations.weight_norm(nn.Linear(7, 7))
        self.last = nn.Linear(7, 1)

    def forward(self, x):
        x = torch.tanh(F.linear(x, torch.exp(self.s) * self.v, self.bias))
        return self.last(torch.tanh(self.normed(x)))


class Flattened(nn.Module):
    """Tokens of all samples in one axis, sample after sample: what a rule takes for the wrong order."""

    def __init__(self):
        super().__init__()
        self.first, self.middle, self.last = nn.Linear(2, 8), nn.Linear(4, 4), nn.Linear(8, 1)

    def forward(self, x):
        tokens = torch.tanh(self.first(x)).reshape(x.shape[0] * 2, 4)
        return self.last(torch.tanh(self.middle(tokens)).reshape(x.shape[0], 8))


class Unruly(nn.Module):
    """A parameter in a function that no rule knows, beside one with a rule."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(2, 6), nn.Linear(6, 1)
        self.weight = nn.Parameter(torch.randn(6, 6) / 2)

    def forward(self, x):
        x = torch.tanh(self.first(x))
        return self.last(torch.tanh(torch.einsum("bi,ij->bj", x, self.weight) + F.linear(x, self.weight)))


class Shared(nn.Module):
    """A layer used twice, and parameters written into what was computed."""

    def __init__(self):
        super().__init__()
        self.first, self.twice, self.last = nn.Linear(2, 6), nn.Linear(6, 6), nn.Linear(6, 1)
        self.offset, self.scale = nn.Parameter(torch.randn(6)), nn.Parameter(torch.randn(1))

    def forward(self, x):
        x = self.first(x)
        x += self.offset
        x = torch.tanh(self.twice(torch.tanh(self.twice(torch.tanh(x)))))
        return (torch.matmul(self.last.weight, x.T) + self.last.bias[:, None]).T * self.scale


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(2, 12), nn.Linear(12, 1)
        self.layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True, activation="gelu")

    def forward(self, x):
        return self.last(self.layer(torch.tanh(self.first(x)).reshape(x.shape[0], 3, 4)).flatten(1))


class IndexBySample(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.first, self.last = nn.Embedding(2, 6), nn.Linear(2, 6), nn.Linear(6, 1)

    def forward(self, x):
        return self.last(torch.tanh(self.first(x) + self.table((x[:, 0] > 0).long())))


def norms() -> nn.Module:
    return nn.Sequential(
        nn.Linear(2, 6), nn.LayerNorm(6), nn.Tanh(), nn.Linear(6, 6), nn.BatchNorm1d(6), nn.Linear(6, 1)
    ).eval()


def group_norms() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 6), nn.GroupNorm(2, 6), nn.Tanh(), nn.RMSNorm(6), nn.Linear(6, 1))


NETWORKS = {
    "mlp": lambda: mlp(width=7),
    "fourier": FourierFeatures,
    "norms": norms,
    "group norms": group_norms,
    "scale": LearnedScale,
    "convolution": Convolution,
    "embedding": ConstantIndex,
    "attention": Tokens,
    "tied": Tied,
    "factorised": Factorised,
    "shared": Shared,
    "transformer": Transformer,
    "index by sample": IndexBySample,
    "flattened": Flattened,
    "unruly": Unruly,
}
#: Those for which a parameter needs the slow way; all others are known to the rules.
SLOW = {"flattened", "unruly"}


def network(name: str) -> nn.Module:
    torch.manual_seed(1)
    model = NETWORKS[name]().double()
    with torch.no_grad():  # away from zero and one, where mistakes would not show
        for p in model.parameters():
            p.add_(0.1 * torch.randn_like(p))
    return model
