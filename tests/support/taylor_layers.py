"""Every rule of Taylor's as a layer, and what it must agree with: automatic differentiation."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import dudx
from dudx import AD, D, Laplacian, Taylor, evaluate

WIDTH = 6


def softly(x: Tensor) -> Tensor:
    """Somewhere positive and bounded, for functions that need it; smooth, so that all derivatives exist."""
    return torch.sigmoid(x) + 0.5


class Wrapped(nn.Module):
    """A function of (B, WIDTH) as a layer."""

    def __init__(self, function: Callable[[Tensor], Tensor]):
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


class Gated(nn.Module):
    """The modified MLP's block: two encoders mixed by a gate."""

    def __init__(self) -> None:
        super().__init__()
        self.u, self.v, self.z = (nn.Linear(WIDTH, WIDTH) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        gate = torch.sigmoid(self.z(x))
        return (1 - gate) * torch.tanh(self.u(x)) + gate * torch.sin(self.v(x))


class FeatureAttention(nn.Module):
    """Attention among the features of one sample, by nn.MultiheadAttention."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(4, num_heads=2, batch_first=True)
        self.spread = nn.Linear(1, 4)

    def forward(self, x: Tensor) -> Tensor:
        tokens = torch.tanh(self.spread(x.unsqueeze(-1)))
        return self.attention(tokens, tokens, tokens, need_weights=False)[0].sum(-1)


def batch_norm_in_eval_mode() -> nn.Module:
    layer = nn.BatchNorm1d(WIDTH)
    layer.running_mean = torch.randn(WIDTH)
    layer.running_var = torch.rand(WIDTH) + 0.5
    return layer.eval()


WEIGHT = torch.randn(WIDTH, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(3)) / WIDTH

#: Every rule, as layers from WIDTH features to WIDTH features that keep numbers of order one.
LAYERS: dict[str, Callable[[], nn.Module]] = {
    "linear": lambda: nn.Linear(WIDTH, WIDTH),
    "linear without bias": lambda: nn.Linear(WIDTH, WIDTH, bias=False),
    "tanh": nn.Tanh,
    "sigmoid": nn.Sigmoid,
    "softplus": nn.Softplus,
    "steep softplus": lambda: nn.Softplus(beta=15.0),
    "silu": nn.SiLU,
    "mish": nn.Mish,
    "gelu": nn.GELU,
    "gelu by tanh": lambda: nn.GELU(approximate="tanh"),
    "relu": nn.ReLU,
    "leaky relu": lambda: nn.LeakyReLU(0.1),
    "elu": nn.ELU,
    "log sigmoid": nn.LogSigmoid,
    "sin": lambda: Wrapped(torch.sin),
    "cos": lambda: Wrapped(torch.cos),
    "sinh": lambda: Wrapped(lambda x: torch.sinh(torch.tanh(x))),
    "cosh": lambda: Wrapped(lambda x: torch.cosh(torch.tanh(x))),
    "exp": lambda: Wrapped(lambda x: torch.exp(-x * x)),
    "expm1": lambda: Wrapped(lambda x: torch.expm1(torch.sin(x))),
    "log": lambda: Wrapped(lambda x: torch.log(softly(x))),
    "log1p": lambda: Wrapped(lambda x: torch.log1p(softly(x))),
    "sqrt": lambda: Wrapped(lambda x: torch.sqrt(softly(x))),
    "rsqrt": lambda: Wrapped(lambda x: torch.rsqrt(softly(x))),
    "reciprocal": lambda: Wrapped(lambda x: torch.reciprocal(softly(x))),
    "square": lambda: Wrapped(lambda x: torch.square(torch.sin(x))),
    "erf": lambda: Wrapped(torch.erf),
    "erfc": lambda: Wrapped(torch.erfc),
    "hypot": lambda: Wrapped(lambda x: torch.hypot(1.5 + x, torch.cos(x))),
    "abs": lambda: Wrapped(torch.abs),
    "cube": lambda: Wrapped(lambda x: torch.sin(x) ** 3),
    "negative power": lambda: Wrapped(lambda x: softly(x) ** -1.5),
    "power of a constant": lambda: Wrapped(lambda x: 2.0 ** torch.sin(x)),
    "power of a jet": lambda: Wrapped(lambda x: softly(x) ** torch.sin(x)),
    "arithmetic": lambda: Wrapped(lambda x: 1 - 0.3 * x + torch.sin(x) / 2 - x / softly(x) + 2 / softly(x)),
    "product": lambda: Wrapped(lambda x: torch.sin(x) * torch.cos(x.flip(1))),
    "product with a column": lambda: Wrapped(lambda x: torch.sin(x) * torch.tanh(x[:, :1])),
    "matmul": lambda: Wrapped(lambda x: x @ WEIGHT),
    "matmul from the left": lambda: Wrapped(lambda x: (WEIGHT @ x.T).T),
    "addmm": lambda: Wrapped(lambda x: torch.addmm(torch.ones(WIDTH, dtype=x.dtype), x, WEIGHT)),
    "einsum": lambda: Wrapped(lambda x: torch.einsum("bi,oi->bo", x, WEIGHT)),
    "einsum of two jets": lambda: Wrapped(lambda x: torch.einsum("bi,bj->bi", torch.sin(x), torch.tanh(x)) / WIDTH),
    "outer products": lambda: Wrapped(lambda x: (torch.sin(x).unsqueeze(2) @ torch.cos(x).unsqueeze(1)).mean(2)),
    "cat and split": lambda: Wrapped(lambda x: torch.cat([t * i for i, t in enumerate(x.split(2, dim=1))], dim=1)),
    "cat with a constant": lambda: Wrapped(lambda x: torch.cat([x[:, 1:], torch.ones_like(x[:, :1])], dim=1)),
    "stack and unbind": lambda: Wrapped(lambda x: torch.stack(x.unbind(1)[::-1], dim=1)),
    "chunk": lambda: Wrapped(lambda x: torch.cat(x.chunk(3, dim=-1)[::-1], dim=-1)),
    "reshape": lambda: Wrapped(lambda x: x.reshape(-1, 2, 3).transpose(1, 2).reshape(-1, WIDTH)),
    "view and permute": lambda: Wrapped(lambda x: x.view(len(x), 3, 2).permute(0, 2, 1).flatten(1)),
    "index": lambda: Wrapped(lambda x: x[:, [3, 1, 0, 2, 5, 4]]),
    "sum": lambda: Wrapped(lambda x: x - 0.1 * x.sum(1, keepdim=True)),
    "mean": lambda: Wrapped(lambda x: x + x.mean(dim=-1, keepdim=True)),
    "variance": lambda: Wrapped(lambda x: torch.sin(x) * x.var(1, keepdim=True)),
    "deviation": lambda: Wrapped(lambda x: x / (0.5 + torch.sin(x).std(-1, correction=0, keepdim=True))),
    "where": lambda: Wrapped(lambda x: torch.where(x > 0, torch.sin(x), x)),
    "softmax": lambda: nn.Softmax(dim=-1),
    "layer norm": lambda: nn.LayerNorm(WIDTH),
    "batch norm, evaluating": batch_norm_in_eval_mode,
    "attention among features": FeatureAttention,
    "causal attention": lambda: Wrapped(
        lambda x: F.scaled_dot_product_attention(*[torch.sin(x).reshape(-1, 3, 2)] * 3, is_causal=True).flatten(1)
    ),
    "gated block": Gated,
    "residual block": lambda: Wrapped(lambda x: x + torch.tanh(x)),
    "dropout, evaluating": lambda: nn.Dropout(0.5).eval(),
    "detached factor": lambda: Wrapped(lambda x: x * torch.sigmoid(x.detach())),
}
OPERATORS = [
    D(), D(0), D(1, 1), D(0, 1), Laplacian(), D(1) - 0.3 * D(0, 0) + 2 * D(), D(0, 0, 0), D(0, 0, 1), D(0, 0, 0, 0),
    D(0, 0, 1, 1), Laplacian() @ Laplacian(), D(0) + 2 * D(1),
]  # fmt: skip


def network(names: list[str], seed: int = 0, inputs: int = 2, outputs: int = 2) -> nn.Module:
    torch.manual_seed(seed)
    layers = [LAYERS[name]() for name in names]
    return nn.Sequential(nn.Linear(inputs, WIDTH), *layers, nn.Linear(WIDTH, outputs)).double().eval()


def points(seed: int = 1, inputs: int = 2) -> Tensor:
    return torch.rand(7, inputs, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) * 2 - 1


def assert_agree(model: nn.Module, x: Tensor, operators: list[dudx.operators.Operator]) -> None:
    # Random chains of layers may steepen: what counts is the error relative to the size of the derivative.
    for operator, taylor, exact in zip(
        operators, evaluate(model, x, operators, Taylor()), evaluate(model, x, operators, AD()), strict=True
    ):
        scale = 1 + exact.abs().max()
        assert ((taylor - exact).abs().max() / scale) < 1e-10, operator
