"""Networks whose samples influence each other, and networks that only look as if theirs did."""

import torch
from helpers import mlp
from torch import nn
from torch.nn.utils import parametrizations


class Attention(nn.Module):
    """Self-attention: over the batch, where every sample sees the others, or over the features of each sample."""

    def __init__(self, over_batch, need_weights=False):
        super().__init__()
        self.over_batch, self.need_weights = over_batch, need_weights
        self.embed = nn.Linear(2, 8)
        self.attend = nn.MultiheadAttention(4 if not over_batch else 8, 2, batch_first=True)
        self.out = nn.Linear(8, 1)

    def forward(self, x):
        h = torch.tanh(self.embed(x))
        tokens = h[None] if self.over_batch else h.unflatten(1, (2, 4))
        mixed = self.attend(tokens, tokens, tokens, need_weights=self.need_weights)[0]
        return self.out(mixed[0] if self.over_batch else mixed.flatten(1))


class HiddenMean(nn.Module):
    """A mean over the batch deep inside, scaled by a gate."""

    def __init__(self, gate=1.0):
        super().__init__()
        self.first, self.last = nn.Linear(2, 8), nn.Linear(8, 1)
        self.gate = nn.Parameter(torch.tensor(gate, dtype=torch.float64))

    def forward(self, x):
        h = torch.tanh(self.first(x))
        return self.last(torch.tanh(h + self.gate * h.mean(0, keepdim=True)))


class Replacing(nn.Module):
    """Keeps a statistic by putting a new tensor in the place of the old one."""

    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(1))
        self.layer = nn.Linear(2, 1)

    def forward(self, x):
        self.seen = self.seen + 1
        return self.layer(x)


def between(*layers):
    return nn.Sequential(nn.Linear(2, 8), *layers, nn.Tanh(), nn.Linear(8, 1)).double()


class SoftmaxOverBatch(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=0)


class SoftmaxOverFeatures(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=1)


COUPLED = {
    "batch norm": lambda: between(nn.BatchNorm1d(8)),
    "batch norm without running statistics": lambda: between(nn.BatchNorm1d(8, track_running_stats=False)).eval(),
    "attention over the batch": lambda: Attention(over_batch=True).double(),
    "attention over the batch with weights": lambda: Attention(over_batch=True, need_weights=True).double(),
    "attention over the batch, evaluating": lambda: Attention(over_batch=True).double().eval(),
    "hidden mean over the batch": lambda: HiddenMean().double(),
    "softmax over the batch": lambda: between(SoftmaxOverBatch()),
}
UNCOUPLED = {
    "plain": mlp,
    "batch norm, evaluating": lambda: between(nn.BatchNorm1d(8)).eval(),
    "attention over features": lambda: Attention(over_batch=False).double(),
    "attention over features with weights": lambda: Attention(over_batch=False, need_weights=True).double(),
    "attention over features, evaluating": lambda: Attention(over_batch=False).double().eval(),
    "layer norm": lambda: between(nn.LayerNorm(8)),
    "group norm": lambda: between(nn.GroupNorm(2, 8)),
    "dropout": lambda: between(nn.Dropout(0.5)),
    "spectral norm": lambda: nn.Sequential(parametrizations.spectral_norm(nn.Linear(2, 8)), nn.Linear(8, 1)).double(),
    "weight norm": lambda: nn.Sequential(parametrizations.weight_norm(nn.Linear(2, 8)), nn.Linear(8, 1)).double(),
    "softmax over features": lambda: between(SoftmaxOverFeatures()),
    "closed gate": lambda: HiddenMean(gate=0.0).double(),
    "replaced buffer": lambda: Replacing().double(),
}


def made(zoo, name):
    torch.manual_seed(0)
    return zoo[name]()
