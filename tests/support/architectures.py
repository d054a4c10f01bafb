"""A zoo of architectures, and whether samples influence each other in them: in training mode, in evaluation mode."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from dudx.lab.run.networks import MLP, AttentionMLP, BatchNormMLP

WIDTH = 8


class Hidden(nn.Module):
    """A network with a function of the hidden states (B, 8) inside."""

    def __init__(self, mix: Callable[[Tensor], Tensor]):
        super().__init__()
        self.first, self.last, self.mix = nn.Linear(2, WIDTH), nn.Linear(WIDTH, 1), mix

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.tanh(self.mix(torch.tanh(self.first(x)))))


def layers(*inside: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Linear(2, WIDTH), *inside, nn.Tanh(), nn.Linear(WIDTH, 1))


class Over(nn.Module):
    """A module that takes tokens (N, L, E): the tokens are the batch, or four slices of each sample's features."""

    def __init__(self, inner: nn.Module, of: str):
        super().__init__()
        self.inner, self.of = inner, of

    def forward(self, h: Tensor) -> Tensor:
        tokens = h.unsqueeze(0) if self.of == "batch" else h.unflatten(1, (4, -1))
        attention = isinstance(self.inner, nn.MultiheadAttention)
        out = self.inner(tokens, tokens, tokens, need_weights=False) if attention else self.inner(tokens)
        out = out[0] if isinstance(out, tuple) else out
        return out[0] if self.of == "batch" else out.flatten(1)


class Siren(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(2, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.c(torch.sin(30 * self.b(torch.sin(30 * self.a(x)))))


class Fourier(nn.Module):
    """Random Fourier features, whose period is 1."""

    def __init__(self, mix: Callable[[Tensor], Tensor] = lambda h: h):
        super().__init__()
        self.register_buffer("frequencies", torch.randint(1, 4, (2, WIDTH // 2)).float())
        self.out, self.mix = nn.Linear(WIDTH, 1), mix

    def forward(self, x: Tensor) -> Tensor:
        angles = 2 * math.pi * x @ self.frequencies
        return self.out(self.mix(torch.cat([angles.sin(), angles.cos()], 1)))


class Gated(nn.Module):
    """The modified MLP: two encodings of the input gate every layer."""

    def __init__(self):
        super().__init__()
        self.u, self.v, self.a = (nn.Linear(2, WIDTH) for _ in range(3))
        self.b, self.out = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 1)

    def forward(self, x: Tensor) -> Tensor:
        u, v, h = (torch.tanh(layer(x)) for layer in (self.u, self.v, self.a))
        h = h * u + (1 - h) * v
        return self.out(torch.tanh(self.b(h)) * u + (1 - torch.tanh(self.b(h))) * v)


class Residual(nn.Module):
    def __init__(self, inner: nn.Module):
        super().__init__()
        self.inner = inner

    def forward(self, h: Tensor) -> Tensor:
        return h + self.inner(h)


class Experts(nn.Module):
    """Each sample goes to one of two networks; how many go together depends on the batch, what comes out does not."""

    def __init__(self):
        super().__init__()
        self.experts = nn.ModuleList([MLP(2, 1, 64, 3), MLP(2, 1, 64, 3)])

    def forward(self, x: Tensor) -> Tensor:
        second = x[:, 0] > 0
        out = x.new_zeros(len(x), 1)
        for expert, mine in zip(self.experts, (~second, second), strict=True):
            out = out.index_put((mine,), expert(x[mine]))
        return out


class Dice(nn.Module):
    """Noise from a generator of its own, which no seed reaches."""

    def __init__(self, amplitude: float):
        super().__init__()
        self.amplitude, self.generator = amplitude, torch.Generator().manual_seed(0)

    def forward(self, h: Tensor) -> Tensor:
        return h + self.amplitude * torch.randn(h.shape, generator=self.generator, dtype=torch.float64).to(h)


class Gate(nn.Module):
    def __init__(self, weight: float):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(weight))

    def forward(self, h: Tensor) -> Tensor:
        return h + self.weight * h.mean(0)


class Conv(nn.Module):
    """(B, 8) as (B, 2, 4) for layers that want channels and a length."""

    def __init__(self, inner: nn.Module):
        super().__init__()
        self.inner = inner

    def forward(self, h: Tensor) -> Tensor:
        return self.inner(h.unflatten(1, (2, 4))).flatten(1)


class Captured(nn.Module):
    """Takes no other batch than the one that its source term belongs to."""

    def __init__(self, size: int, mix: bool):
        super().__init__()
        self.net, self.mix = MLP(2, 1, WIDTH, 1), mix
        self.register_buffer("source", torch.linspace(0, 1, size).unsqueeze(1))

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x) * self.source + (self.mix * x.mean(0, keepdim=True) * self.source)[:, :1]


def nearest(x: Tensor) -> Tensor:
    """The distance to the nearest other sample."""
    apart = (x.unsqueeze(1) - x).square().sum(-1) + 1e6 * torch.eye(len(x), dtype=x.dtype)
    return apart.amin(1, keepdim=True)


def within_reach(x: Tensor) -> Tensor:
    """A sum over neighbours nearer than 0.01."""
    apart = (x.unsqueeze(1) - x).square().sum(-1)
    return x[:, :1] + (apart < 1e-4).to(x).sum(1, keepdim=True)


def ghost(h: Tensor) -> Tensor:
    """Batch norm by groups of eight samples."""
    return torch.cat([part - part.mean(0) for part in h.split(8)])


def on_some_rows(x: Tensor) -> Tensor:
    """Sample 3 sees sample 1, and nothing else sees anything."""
    u = x[:, :1].sin()
    return torch.cat([u[:3], u[3:4] + 1e-3 * u[1:2], u[4:]])


def pairs(x: Tensor) -> Tensor:
    """Each even sample sees the odd one after it."""
    partner = torch.arange(len(x)) ^ 1
    return x[:, :1] * x[partner.clamp(max=len(x) - 1), 1:]


def in_different_units(x: Tensor) -> Tensor:
    """A large output without influence beside a small one with it."""
    return torch.stack([1e6 * x[:, 0], 1e-3 * (x[:, 1] - x[:, 1].mean())], 1)


def vanishing(x: Tensor) -> Tensor:
    """Zero on the boundary of the unit square, as networks with built-in boundary conditions are."""
    return (x * (1 - x)).prod(1, keepdim=True) * (x - x.mean(0)).exp().sum(1, keepdim=True)


def switched(x: Tensor) -> Tensor:
    return x[:, :1] * (2 if x.mean() > 0 else 1)


def switched_back(x: Tensor) -> Tensor:
    return x[:, :1] * (2 if x.mean() < 0 else 1)


def unseeded() -> Callable[[Tensor], Tensor]:
    dice = random.Random(0)
    return lambda x: x[:, :1] * (1 + 0.1 * dice.random())


def encoder(**options: object) -> nn.Module:
    return nn.TransformerEncoderLayer(WIDTH, 2, 16, batch_first=True, **options)  # type: ignore[arg-type]


def in_samples(**options: object) -> nn.Module:
    return nn.TransformerEncoderLayer(2, 1, 16, batch_first=True, **options)  # type: ignore[arg-type]


#: Whether a network is coupled, as (in training mode, in evaluation mode).
BOTH, NEITHER, TRAINING = (True, True), (False, False), (True, False)
ZOO: dict[str, tuple[Callable[[], Callable[[Tensor], Tensor]], tuple[bool, bool]]] = {
    # Samples are independent.
    "MLP": (lambda: MLP(2, 1, 32, 3), NEITHER),
    "wide and deep MLP": (lambda: MLP(2, 3, 256, 8), NEITHER),
    "SIREN": (Siren, NEITHER),
    "Fourier features": (Fourier, NEITHER),
    "modified MLP": (Gated, NEITHER),
    "ResNet": (lambda: layers(Residual(nn.Sequential(nn.Linear(8, 8), nn.SiLU(), nn.Linear(8, 8)))), NEITHER),
    "layer norm": (lambda: layers(nn.LayerNorm(WIDTH)), NEITHER),
    "group norm": (lambda: layers(nn.GroupNorm(2, WIDTH)), NEITHER),
    "instance norm": (lambda: layers(Conv(nn.InstanceNorm1d(2, affine=True))), NEITHER),
    "RMS norm": (lambda: layers(nn.RMSNorm(WIDTH)), NEITHER),
    "convolution over features": (lambda: layers(Conv(nn.Conv1d(2, 2, 3, padding=1))), NEITHER),
    "softmax over features": (lambda: layers(nn.Softmax(dim=1)), NEITHER),
    "attention within a sample": (
        lambda: layers(Over(nn.MultiheadAttention(2, 1, batch_first=True), "sample")),
        NEITHER,
    ),
    "transformer within a sample": (lambda: layers(Over(in_samples(dropout=0.1), "sample")), NEITHER),
    "GRU within a sample": (lambda: layers(Over(nn.GRU(2, 2, batch_first=True), "sample")), NEITHER),
    "dropout": (lambda: layers(nn.Dropout(0.5)), NEITHER),
    "alpha dropout": (lambda: layers(nn.AlphaDropout(0.3)), NEITHER),
    "weight norm": (lambda: nn.Sequential(parametrizations.weight_norm(nn.Linear(2, 8)), nn.Linear(8, 1)), NEITHER),
    "spectral norm": (lambda: nn.Sequential(parametrizations.spectral_norm(nn.Linear(2, 8)), nn.Linear(8, 1)), NEITHER),
    "old spectral norm": (lambda: nn.Sequential(nn.utils.spectral_norm(nn.Linear(2, 8)), nn.Linear(8, 1)), NEITHER),
    "mixture of experts": (Experts, NEITHER),
    "noise of its own": (lambda: layers(Dice(0.3)), NEITHER),
    "noise in common to all rows": (unseeded, NEITHER),
    "constant": (lambda: lambda x: torch.ones(len(x), 1, dtype=x.dtype), NEITHER),
    "closed gate": (lambda: layers(Gate(0.0)), NEITHER),
    "NaN everywhere": (lambda: lambda x: x[:, :1] * torch.nan, NEITHER),
    "NaN in some rows": (lambda: lambda x: x[:, :1].sqrt(), NEITHER),
    "infinite in some rows": (lambda: lambda x: torch.where(x[:, :1] > 0, torch.inf, x[:, :1]), NEITHER),
    "takes one batch only": (lambda: Captured(40, mix=False), NEITHER),
    # The mode decides.
    "batch norm": (lambda: layers(nn.BatchNorm1d(WIDTH)), TRAINING),
    "BatchNormMLP": (lambda: BatchNormMLP(2), TRAINING),
    "batch norm, no affine map, cumulative": (
        lambda: layers(nn.BatchNorm1d(WIDTH, affine=False, momentum=None)),
        TRAINING,
    ),
    "batch norm over channels": (lambda: layers(Conv(nn.BatchNorm1d(2))), TRAINING),
    "batch norm without running statistics": (
        lambda: layers(nn.BatchNorm1d(WIDTH, track_running_stats=False)),
        BOTH,
    ),
    # Samples influence each other.
    "hidden mean": (lambda: Hidden(lambda h: h + h.mean(0)), BOTH),
    "hidden mean, weight 0.001": (lambda: layers(Gate(1e-3)), BOTH),
    "hidden mean of periodic features": (lambda: Fourier(lambda h: h + h.mean(0)), BOTH),
    "deviation": (lambda: Hidden(lambda h: h / (h.std(0) + 0.1)), BOTH),
    "largest": (lambda: Hidden(lambda h: h - h.amax(0)), BOTH),
    "smallest": (lambda: Hidden(lambda h: h - h.amin(0)), BOTH),
    "median": (lambda: Hidden(lambda h: h - h.median(0).values), BOTH),
    "softmax over the batch": (lambda: layers(nn.Softmax(dim=0)), BOTH),
    "attention over the batch": (lambda: layers(Over(nn.MultiheadAttention(8, 2, batch_first=True), "batch")), BOTH),
    "attention over the batch by hand": (lambda: Hidden(lambda h: torch.softmax(h @ h.T, 1) @ h), BOTH),
    "AttentionMLP": (lambda: AttentionMLP(2), BOTH),
    "transformer over the batch": (lambda: layers(Over(encoder(dropout=0.0), "batch")), BOTH),
    "transformer over the batch with dropout": (lambda: layers(Over(encoder(dropout=0.1), "batch")), BOTH),
    "GRU over the batch": (lambda: layers(Over(nn.GRU(8, 8, batch_first=True), "batch")), BOTH),
    "running sum": (lambda: Hidden(lambda h: h.cumsum(0) / len(h)), BOTH),
    "sorted": (lambda: Hidden(lambda h: h.sort(0).values), BOTH),
    "rolled": (lambda: Hidden(lambda h: h.roll(1, 0)), BOTH),
    "shuffled": (lambda: Hidden(lambda h: h + h[torch.randperm(len(h))]), BOTH),
    "groups of eight": (lambda: Hidden(ghost), BOTH),
    "pairs": (lambda: pairs, BOTH),
    "nearest neighbour": (lambda: nearest, BOTH),
    "neighbours within reach": (lambda: within_reach, BOTH),
    "norm of the batch": (lambda: lambda x: x[:, :1] / x.norm(), BOTH),
    "mean of everything": (lambda: lambda x: x - x.mean(), BOTH),
    "switch on the mean": (lambda: switched, BOTH),
    "switch the other way": (lambda: switched_back, BOTH),
    "causal": (lambda: lambda x: x[:, :1] * torch.cat([x[:1, 1:], x[:-1, 1:]]), BOTH),
    "only from the last row": (lambda: lambda x: x[:, :1] + x[-1:, 1:], BOTH),
    "only on one row": (lambda: on_some_rows, BOTH),
    "outputs in different units": (lambda: in_different_units, BOTH),
    "outputs near 1e-9": (lambda: lambda x: 1e-9 * (x - x.mean(0)), BOTH),
    "zero on the boundary": (lambda: vanishing, BOTH),
    "noise, and a mean": (lambda: nn.Sequential(layers(nn.BatchNorm1d(WIDTH)), Dice(1e-3)), TRAINING),
    "takes one batch only, with a mean": (lambda: Captured(40, mix=True), BOTH),
}


def made(name: str, dtype: torch.dtype, training: bool) -> Callable[[Tensor], Tensor]:
    torch.manual_seed(0)
    model = ZOO[name][0]()
    return model.to(dtype).train(training) if isinstance(model, nn.Module) else model
