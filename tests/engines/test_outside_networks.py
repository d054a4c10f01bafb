"""Networks as others write them, unchanged: Taylor, AD and differences agree."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from helpers import mlp, points
from torch import Tensor, nn

from dudx import AD, FD, D, Laplacian, Taylor, evaluate


class SplineLayer(nn.Module):
    """A Kolmogorov–Arnold layer of B-splines beside a base activation, in the manner of the fast implementations."""

    def __init__(self, inputs: int, outputs: int, cells: int = 5, order: int = 3):
        super().__init__()
        self.order = order
        knots = torch.arange(-order, cells + order + 1, dtype=torch.float64) * 2 / cells - 1
        self.register_buffer("grid", 1.7 * knots.expand(inputs, -1).contiguous())
        self.base = nn.Parameter(torch.randn(outputs, inputs, dtype=torch.float64) / inputs)
        self.spline = nn.Parameter(torch.randn(outputs, inputs, cells + order, dtype=torch.float64) / inputs)
        self.scale = nn.Parameter(torch.rand(outputs, inputs, dtype=torch.float64) + 0.5)

    def bases(self, x: Tensor) -> Tensor:
        grid, x = self.grid, x.unsqueeze(-1)
        values = ((x >= grid[:, :-1]) & (x < grid[:, 1:])).to(x.dtype)
        for k in range(1, self.order + 1):
            left = (x - grid[:, : -(k + 1)]) / (grid[:, k:-1] - grid[:, : -(k + 1)])
            right = (grid[:, k + 1 :] - x) / (grid[:, k + 1 :] - grid[:, 1:-k])
            values = left * values[:, :, :-1] + right * values[:, :, 1:]
        assert values.size() == (x.size(0), x.size(1), self.spline.shape[-1])
        return values.contiguous()

    def forward(self, x: Tensor) -> Tensor:
        shape = x.shape
        x = x.reshape(-1, shape[-1])
        base = F.linear(F.silu(x), self.base)
        spline = F.linear(
            self.bases(x).view(x.size(0), -1), (self.spline * self.scale.unsqueeze(-1)).view(len(self.base), -1)
        )
        return (base + spline).reshape(*shape[:-1], -1)


class EdgeSplines(nn.Module):
    """Splines per edge with einsum and a mask, as in the first implementation."""

    def __init__(self, inputs: int, outputs: int, cells: int = 4, order: int = 3):
        super().__init__()
        self.k = order
        grid = torch.linspace(-1.6, 1.6, cells + 1, dtype=torch.float64)[None].expand(inputs, -1)
        h = (grid[:, -1:] - grid[:, :1]) / cells
        for _ in range(order):
            grid = torch.cat([grid[:, :1] - h, grid, grid[:, -1:] + h], dim=1)
        self.grid = nn.Parameter(grid, requires_grad=False)
        self.coef = nn.Parameter(0.5 * torch.randn(inputs, outputs, cells + order, dtype=torch.float64))
        self.mask = nn.Parameter(torch.ones(inputs, outputs, dtype=torch.float64), requires_grad=False)
        self.scale_base = nn.Parameter(torch.rand(inputs, outputs, dtype=torch.float64))
        self.scale_sp = nn.Parameter(torch.ones(inputs, outputs, dtype=torch.float64))

    def basis(self, x: Tensor, k: int) -> Tensor:
        x, grid = x.unsqueeze(dim=2), self.grid.unsqueeze(dim=0)
        if k == 0:
            return ((x >= grid[:, :, :-1]) * (x < grid[:, :, 1:])) * torch.ones_like(x)
        lower = self.basis(x[:, :, 0], k - 1)
        value = (x - grid[:, :, : -(k + 1)]) / (grid[:, :, k:-1] - grid[:, :, : -(k + 1)]) * lower[:, :, :-1]
        value = value + (grid[:, :, k + 1 :] - x) / (grid[:, :, k + 1 :] - grid[:, :, 1:(-k)]) * lower[:, :, 1:]
        return torch.nan_to_num(value)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.einsum("ijk,jlk->ijl", self.basis(x, self.k), self.coef)
        y = self.scale_base[None] * F.silu(x)[:, :, None] + self.scale_sp[None] * y
        return torch.sum(self.mask[None] * y, dim=1)


class PirateNet(nn.Module):
    """Random Fourier features, gates, and residual blocks with a learned, at first closed, way through."""

    def __init__(self, width: int = 8, blocks: int = 2):
        super().__init__()
        self.register_buffer("frequencies", torch.randn(2, width // 2, dtype=torch.float64))
        self.u, self.v = nn.Linear(width, width), nn.Linear(width, width)
        self.blocks = nn.ModuleList(nn.ModuleList(nn.Linear(width, width) for _ in range(3)) for _ in range(blocks))
        self.alphas = nn.Parameter(torch.full((blocks,), 0.3, dtype=torch.float64))
        self.last = nn.Linear(width, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        phase = x @ self.frequencies
        h = torch.cat([torch.cos(phase), torch.sin(phase)], dim=-1)
        u, v = torch.tanh(self.u(h)), torch.tanh(self.v(h))
        for alpha, (a, b, c) in zip(self.alphas, self.blocks, strict=True):
            f = torch.tanh(a(h))
            f = f * u + (1 - f) * v
            f = torch.tanh(b(f))
            f = f * u + (1 - f) * v
            h = alpha * torch.tanh(c(f)) + (1 - alpha) * h
        return self.last(h)


class ModifiedMLP(nn.Module):
    def __init__(self, width: int = 8):
        super().__init__()
        self.u, self.v, self.first = (nn.Linear(2, width) for _ in range(3))
        self.hidden = nn.ModuleList(nn.Linear(width, width) for _ in range(2))
        self.last = nn.Linear(width, 1)

    def forward(self, x: Tensor) -> Tensor:
        u, v, h = torch.tanh(self.u(x)), torch.tanh(self.v(x)), torch.tanh(self.first(x))
        for layer in self.hidden:
            z = torch.tanh(layer(h))
            h = torch.lerp(u, v, z)
        return self.last(h) * torch.prod(1 - x**2, 1, keepdim=True)


class Siren(nn.Module):
    def __init__(self, width: int = 8, omega: float = 3.0):
        super().__init__()
        self.omega = omega
        self.layers = nn.ModuleList([nn.Linear(2, width), nn.Linear(width, width)])
        self.last = nn.Linear(width, 1)
        with torch.no_grad():
            for layer in self.layers:
                layer.weight.uniform_(-1, 1).mul_(math.sqrt(6 / layer.in_features) / omega)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = (self.omega * layer(x)).sin()
        return self.last(x)


class HashGrid(nn.Module):
    """Tables of features at the corners of grids of several sizes, interpolated; smoothly, so that all orders exist."""

    def __init__(self, levels: int = 3, size: int = 64, features: int = 2):
        super().__init__()
        self.tables = nn.ParameterList(torch.randn(size, features, dtype=torch.float64) for _ in range(levels))
        self.last = nn.Linear(levels * features, 1)

    def forward(self, x: Tensor) -> Tensor:
        found = []
        for level, table in enumerate(self.tables):
            scaled = (x + 1) * (1.5 * 2**level)
            corner = torch.floor(scaled)
            t = scaled - corner
            weight = t * t * t * (t * (t * 6 - 15) + 10)
            cell = corner.long()
            total = 0
            for i in (0, 1):
                for j in (0, 1):
                    index = ((cell[:, 0] + i) ^ ((cell[:, 1] + j) * 2654435761)) % len(table)
                    a = weight[:, :1] if i else 1 - weight[:, :1]
                    b = weight[:, 1:] if j else 1 - weight[:, 1:]
                    total = total + a * b * table[index]
            found.append(total)
        return self.last(torch.cat(found, dim=-1))


class Recurrent(nn.Module):
    """The two inputs as a sequence."""

    def __init__(self, kind: type[nn.Module], **options: object):
        super().__init__()
        self.cells, self.last = kind(1, 5, batch_first=True, **options), nn.LazyLinear(1)
        self.last(self.cells(torch.zeros(1, 2, 1))[0][:, -1])

    def forward(self, x: Tensor) -> Tensor:
        outputs, _ = self.cells(x.unsqueeze(-1))
        return self.last(outputs[:, -1])


class Tokens(nn.Module):
    """A transformer encoder over the inputs of one sample."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(1, 6)
        self.position = nn.Parameter(torch.randn(2, 6, dtype=torch.float64))
        layer = nn.TransformerEncoderLayer(6, 2, 10, dropout=0.0, activation=F.gelu, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.last = nn.Linear(12, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.encoder(self.embed(x[..., None]) + self.position).flatten(1))


class DeepONet(nn.Module):
    """A branch of sensor values, the same for all points, and a trunk of coordinates."""

    def __init__(self) -> None:
        super().__init__()
        self.branch, self.trunk = mlp(5, 6, width=8, depth=1), mlp(2, 6, width=8, depth=2, seed=1)
        self.bias = nn.Parameter(torch.zeros(1, dtype=torch.float64))
        self.register_buffer("sensors", torch.linspace(0, 1, 5, dtype=torch.float64).sin())

    def forward(self, x: Tensor) -> Tensor:
        branch = self.branch(self.sensors).expand(len(x), -1)
        return torch.einsum("bi,bi->b", branch, self.trunk(x)).unsqueeze(1) + self.bias


class Convolutions(nn.Module):
    """Features of one sample as a small picture."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(2, 16)
        self.body = nn.Sequential(
            nn.Conv2d(1, 3, 3, padding=1), nn.BatchNorm2d(3), nn.SiLU(), nn.AvgPool2d(2), nn.Conv2d(3, 2, 1), nn.GELU(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2, 1),
        ).eval()  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return self.body(self.first(x).tanh().view(-1, 1, 4, 4))


class Filled(nn.Module):
    """Features written into an array column by column."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(6, 1)

    def forward(self, x: Tensor) -> Tensor:
        features = torch.zeros(x.shape[0], 6, dtype=x.dtype)
        for k in range(3):
            features[:, 2 * k] = torch.sin((k + 1) * x[:, 0])
            features[:, 2 * k + 1] = torch.cos((k + 1) * x[:, 1]) * x[:, 0]
        features[:, 1:3] *= 0.5
        return self.last(features)


class Spectral(nn.Module):
    """A Fourier layer on features: complex weights between a transform and its inverse."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(2, 8), nn.Linear(8, 1)
        self.weight = nn.Parameter(torch.randn(5, 2, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        modes = torch.fft.rfft(torch.tanh(self.first(x))) * torch.view_as_complex(self.weight)
        return self.last(torch.fft.irfft(modes, n=8))


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "spline layers": lambda: nn.Sequential(SplineLayer(2, 4), SplineLayer(4, 1)),
    "splines by edges": lambda: nn.Sequential(EdgeSplines(2, 3), EdgeSplines(3, 1)),
    "PirateNet": PirateNet,
    "modified MLP": ModifiedMLP,
    "SIREN": Siren,
    "hash grid": HashGrid,
    "LSTM": lambda: Recurrent(nn.LSTM),
    "GRU": lambda: Recurrent(nn.GRU, num_layers=2, bidirectional=True),
    "transformer over tokens": Tokens,
    "DeepONet": DeepONet,
    "convolutions": Convolutions,
    "features written one by one": Filled,
    "Fourier layer": Spectral,
}
OPERATORS = [D(), D(0), Laplacian(), D(0, 1)]


def made(name: str) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    return NETWORKS[name]().double(), 0.9 * points(6, 2)


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.filterwarnings("error::dudx.errors.SlowRuleWarning")
def test_engines_agree_on_networks_as_others_write_them(name: str) -> None:
    model, x = made(name)
    exact, ours = (evaluate(model, x, OPERATORS, engine) for engine in (AD(), Taylor()))
    for a, b in zip(ours, exact, strict=True):
        assert (a - b).abs().max() < 1e-9 * (1 + b.abs().max())
    # The step balances truncation against rounding in double precision; third derivatives of splines jump at knots.
    tolerance = 1e-3 if "spline" in name else 1e-5
    for a, b in zip(evaluate(model, x, OPERATORS, FD(1e-3, accuracy=4)), exact, strict=True):
        assert (a - b).abs().max() < tolerance * (1 + b.abs().max())


@pytest.mark.parametrize("name", NETWORKS)
def test_gradients_of_such_networks_agree(name: str) -> None:
    model, x = made(name)
    parameters = [p for p in model.parameters() if p.requires_grad]
    gradients = []
    for engine in (AD(), Taylor()):
        loss = sum(value.square().mean() for value in evaluate(model, x, OPERATORS, engine))
        gradients.append(torch.autograd.grad(loss, parameters, materialize_grads=True))
    for exact, ours in zip(*gradients, strict=True):
        assert (ours - exact).abs().max() < 1e-9 * (1 + exact.abs().max())
