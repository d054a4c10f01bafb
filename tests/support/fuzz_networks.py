"""Random networks of many kinds of layers, each with the same function written out for a reference."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint

Function = Callable[[Tensor], Tensor]


class Layer(nn.Module):
    """Features to as many features. `plain` computes the same in functions that can be differentiated as one likes."""

    def __init__(self, forward: Callable[..., Tensor], plain: Callable[..., Tensor] | None = None, **inner: nn.Module):
        super().__init__()
        self.inner = nn.ModuleDict(inner)
        self._forward, self._plain = forward, plain or forward

    def forward(self, x: Tensor) -> Tensor:
        return self._forward(x, **self.inner)

    def plain(self, x: Tensor) -> Tensor:
        return self._plain(x, **self.inner)


def _one(module: nn.Module) -> Layer:
    return Layer(lambda x, module: module(x), module=module)


def _standard(x: Tensor, dims: tuple[int, ...], eps: float) -> Tensor:
    centred = x - x.mean(dims, keepdim=True)
    return centred / (centred.square().mean(dims, keepdim=True) + eps).sqrt()


def _tokens(x: Tensor) -> Tensor:
    return x.unflatten(-1, (-1, 2))


def _attended(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]), dim=-1) @ v


def _multi_head(x: Tensor, module: nn.MultiheadAttention) -> Tensor:
    tokens = _tokens(x)
    q, k, v = (tokens @ module.in_proj_weight.T + module.in_proj_bias).chunk(3, dim=-1)
    return module.out_proj(_attended(q, k, v)).flatten(-2)


def _encoder(x: Tensor, module: nn.TransformerEncoderLayer) -> Tensor:
    tokens = _tokens(x)
    mixed = _standard(tokens + _tokens(_multi_head(x, module.self_attn)), (-1,), module.norm1.eps)
    mixed = mixed * module.norm1.weight + module.norm1.bias
    out = _standard(mixed + module.linear2(F.gelu(module.linear1(mixed))), (-1,), module.norm2.eps)
    return (out * module.norm2.weight + module.norm2.bias).flatten(-2)


def _gru(x: Tensor, module: nn.GRUCell) -> Tensor:
    r, z, n = (x @ module.weight_ih.T + module.bias_ih).chunk(3, dim=-1)
    hr, hz, hn = module.bias_hh.chunk(3)
    r, z = torch.sigmoid(r + hr), torch.sigmoid(z + hz)
    return (1 - z) * torch.tanh(n + r * hn)


class Cubic(torch.autograd.Function):
    """x + x³/10 with a backward pass by hand, and rightly so."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x + x * x * x / 10

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx, gradient):
        return gradient * (1 + 0.3 * ctx.saved_tensors[0] ** 2)


def _in_place(x: Tensor) -> Tensor:
    h = 1 * x
    return h.mul_(0.7).sin_().add_(0.1)


ELEMENTWISE: dict[str, Function] = {
    "sin": torch.sin, "cos": torch.cos, "tanh": torch.tanh, "sigmoid": torch.sigmoid, "erf": torch.erf,
    "atan": torch.atan, "sinh": lambda x: torch.sinh(x / 3), "cosh": lambda x: torch.cosh(x / 3) - 1,
    "exp": lambda x: torch.exp(-x * x), "expm1": lambda x: torch.expm1(x / 4), "log": lambda x: torch.log(2 + x * x),
    "log1p": lambda x: torch.log1p(x * x), "sqrt": lambda x: torch.sqrt(1 + x * x),
    "rsqrt": lambda x: x * torch.rsqrt(1 + x * x), "reciprocal": lambda x: torch.reciprocal(2 + torch.sin(x)),
    "division": lambda x: x / (2 + torch.cos(x)), "square": lambda x: torch.square(x) / 3, "cube": lambda x: x**3 / 6,
    "real power": lambda x: (2 + x * x) ** 0.7, "power of two": lambda x: 2 ** (x / 3),
    "swish": lambda x: x * torch.sigmoid(x),
    "bump": lambda x: 1 / (1 + x * x), "in place": _in_place, "asinh": torch.asinh,
    "hermite": lambda x: x * torch.exp(-x * x / 2),
}  # fmt: skip
ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "Tanh": nn.Tanh, "Sigmoid": nn.Sigmoid, "SiLU": nn.SiLU, "GELU": nn.GELU, "Softplus": nn.Softplus, "Mish": nn.Mish,
    "LogSigmoid": nn.LogSigmoid, "Tanhshrink": nn.Tanhshrink, "GELU by tanh": lambda: nn.GELU("tanh"),
    "Softplus, steep": lambda: nn.Softplus(beta=2.0), "Identity": nn.Identity,
    "Dropout, evaluation": lambda: nn.Dropout().eval(),
}  # fmt: skip
#: By the width, an even number.
LAYERS: dict[str, Callable[[int], Layer]] = {
    "Linear": lambda w: _one(nn.Linear(w, w)),
    "Linear without bias": lambda w: _one(nn.Linear(w, w, bias=False)),
    "Bilinear": lambda w: Layer(
        lambda x, m: m(x, x) / 2,
        lambda x, m: torch.einsum("...i,oij,...j->...o", x, m.weight, x) / 2 + m.bias / 2,
        m=nn.Bilinear(w, w, w),
    ),
    "weight norm": lambda w: _one(parametrizations.weight_norm(nn.Linear(w, w))),
    "orthogonal": lambda w: _one(parametrizations.orthogonal(nn.Linear(w, w))),
    "spectral norm": lambda w: _one(parametrizations.spectral_norm(nn.Linear(w, w)).eval()),
    "LayerNorm": lambda w: Layer(
        lambda x, m: m(x), lambda x, m: _standard(x, (-1,), m.eps) * m.weight + m.bias, m=nn.LayerNorm(w, eps=0.1)
    ),
    "native_layer_norm": lambda w: Layer(
        lambda x: torch.native_layer_norm(x, [w], None, None, 0.1)[0], lambda x: _standard(x, (-1,), 0.1)
    ),
    "GroupNorm": lambda w: Layer(
        lambda x, m: m(x),
        lambda x, m: _standard(x.unflatten(-1, (2, -1)), (-1,), m.eps).flatten(-2) * m.weight + m.bias,
        m=nn.GroupNorm(2, w, eps=0.1),
    ),
    "InstanceNorm": lambda w: Layer(
        lambda x, m: m(_tokens(x)).flatten(1),
        lambda x, m: _standard(_tokens(x), (-1,), m.eps).flatten(-2),
        m=nn.InstanceNorm1d(w // 2, eps=0.1),
    ),
    "RMSNorm": lambda w: Layer(
        lambda x, m: m(x),
        lambda x, m: x / (x.square().mean(-1, keepdim=True) + m.eps).sqrt() * m.weight,
        m=nn.RMSNorm(w, eps=0.1),
    ),
    "BatchNorm, evaluation": lambda w: Layer(
        lambda x, m: m(x),
        lambda x, m: (x - m.running_mean) / (m.running_var + m.eps).sqrt() * m.weight + m.bias,
        m=nn.BatchNorm1d(w).eval(),
    ),
    "normalize": lambda w: Layer(lambda x: F.normalize(x + 2, dim=-1)),
    "MultiheadAttention": lambda w: Layer(
        lambda x, m: m(_tokens(x), _tokens(x), _tokens(x))[0].flatten(1),
        lambda x, m: _multi_head(x, m),
        m=nn.MultiheadAttention(2, 1, batch_first=True),
    ),
    "MultiheadAttention without weights": lambda w: Layer(
        lambda x, m: m(_tokens(x), _tokens(x), _tokens(x), need_weights=False)[0].flatten(1),
        lambda x, m: _multi_head(x, m),
        m=nn.MultiheadAttention(2, 1, batch_first=True),
    ),
    "TransformerEncoderLayer": lambda w: Layer(
        lambda x, m: m(_tokens(x)).flatten(1),
        lambda x, m: _encoder(x, m),
        m=nn.TransformerEncoderLayer(2, 1, 4, dropout=0.0, activation=F.gelu, batch_first=True, layer_norm_eps=0.3),
    ),
    "scaled_dot_product_attention": lambda w: Layer(
        lambda x: F.scaled_dot_product_attention(_tokens(x), _tokens(x), _tokens(x)).flatten(1),
        lambda x: _attended(_tokens(x), _tokens(x), _tokens(x)).flatten(-2),
    ),
    "GRUCell": lambda w: Layer(lambda x, m: m(x), lambda x, m: _gru(x, m), m=nn.GRUCell(w, w)),
    "Conv1d": lambda w: Layer(
        lambda x, m: m(x.unsqueeze(1)).squeeze(1),
        lambda x, m: F.pad(x, (1, 1)).unfold(-1, 3, 1) @ m.weight[0, 0] + m.bias,
        m=nn.Conv1d(1, 1, 3, padding=1),
    ),
    "AvgPool1d": lambda w: Layer(
        lambda x: F.avg_pool1d(F.pad(x, (1, 1)).unsqueeze(1), 3, 1).squeeze(1),
        lambda x: F.pad(x, (1, 1)).unfold(-1, 3, 1).mean(-1),
    ),
    "softmax": lambda w: Layer(lambda x: torch.softmax(x, dim=-1)),
    "log_softmax": lambda w: Layer(lambda x: torch.log_softmax(x, dim=-1)),
    "logsumexp": lambda w: Layer(lambda x: x - torch.logsumexp(x, dim=-1, keepdim=True)),
    "GLU": lambda w: Layer(lambda x, m: F.glu(m(x), dim=-1), m=nn.Linear(w, 2 * w)),
    "SwiGLU": lambda w: Layer(lambda x, a, b: F.silu(a(x)) * b(x), a=nn.Linear(w, w), b=nn.Linear(w, w)),
    "gate": lambda w: Layer(lambda x, m: x + torch.sigmoid(m(x)) * torch.tanh(m(x)), m=nn.Linear(w, w)),
    "residual": lambda w: Layer(lambda x, m: x + torch.tanh(m(x)), m=nn.Linear(w, w)),
    "Fourier features": lambda w: Layer(
        lambda x, m: torch.cat([torch.sin(m(x)), torch.cos(m(x))], dim=-1), m=nn.Linear(w, w // 2)
    ),
    "einsum": lambda w: Layer(lambda x, m: torch.einsum("...i,oi->...o", x, m.weight), m=nn.Linear(w, w)),
    "matmul": lambda w: Layer(lambda x, m: torch.matmul(x, m.weight) + m.bias, m=nn.Linear(w, w)),
    "addmm": lambda w: Layer(
        lambda x, m: torch.addmm(m.bias, x, m.weight), lambda x, m: m.bias + x @ m.weight, m=nn.Linear(w, w)
    ),
    "chunk": lambda w: Layer(lambda x: torch.cat([x.chunk(2, -1)[1], torch.sin(x.chunk(2, -1)[0])], dim=-1)),
    "stack": lambda w: Layer(lambda x: torch.stack([x, torch.tanh(x)], dim=-1).mean(-1)),
    "roll": lambda w: Layer(lambda x: x * torch.roll(x, 1, dims=-1) / 2),
    "flip": lambda w: Layer(lambda x: x + 0.3 * torch.flip(x, dims=(-1,))),
    "cumsum": lambda w: Layer(lambda x: torch.cumsum(x, dim=-1) / 2),
    "gather": lambda w: Layer(lambda x: x[..., torch.arange(w - 1, -1, -1)]),
    "permutation of tokens": lambda w: Layer(lambda x: _tokens(x).transpose(-1, -2).reshape(x.shape)),
    "variance": lambda w: Layer(lambda x: x / (1 + x.var(-1, keepdim=True)).sqrt()),
    "norm": lambda w: Layer(lambda x: x / (1 + torch.linalg.vector_norm(x + 3, dim=-1, keepdim=True))),
    "where": lambda w: Layer(lambda x, m: torch.where(m.weight[0] > 0, torch.sin(x), torch.tanh(x)), m=nn.Linear(w, w)),
    "checkpoint": lambda w: Layer(
        lambda x, m: checkpoint(lambda h: torch.tanh(m(h)), x, use_reentrant=False),
        lambda x, m: torch.tanh(m(x)),
        m=nn.Linear(w, w),
    ),
    "autograd.Function": lambda w: Layer(Cubic.apply, lambda x: x + x**3 / 10),
    **{name: (lambda w, f=f: Layer(f)) for name, f in ELEMENTWISE.items()},
    **{name: (lambda w, make=make: _one(make())) for name, make in ACTIVATIONS.items()},
}
#: Layers by which samples influence each other.
MIXING: dict[str, Callable[[int], Layer]] = {
    "BatchNorm": lambda w: Layer(
        lambda x, m: m(x),
        lambda x, m: _standard(x, (0,), m.eps) * m.weight + m.bias,
        m=nn.BatchNorm1d(w, eps=0.1, track_running_stats=False),
    ),
    "mean of the batch": lambda w: Layer(lambda x: x - torch.tanh(x).mean(0)),
    "softmax over the batch": lambda w: Layer(lambda x: x * torch.softmax(x, dim=0)),
    "attention over the batch": lambda w: Layer(
        lambda x: F.scaled_dot_product_attention(x.unsqueeze(0), x.unsqueeze(0), x.unsqueeze(0)).squeeze(0),
        lambda x: _attended(x, x, x),
    ),
}


class Network(nn.Module):
    """A linear layer, some at random, and another linear one."""

    def __init__(self, numbers: random.Random, mixing: bool = False):
        super().__init__()
        self.inputs, self.outputs = numbers.randint(1, 3), numbers.randint(1, 3)
        width = numbers.choice((4, 6))
        self.names = [numbers.choice(list(LAYERS)) for _ in range(numbers.randint(1, 3))]
        kinds = [LAYERS[name] for name in self.names]
        if mixing:
            place = numbers.randint(0, len(kinds))
            self.names.insert(place, numbers.choice(list(MIXING)))
            kinds.insert(place, MIXING[self.names[place]])
        self.first, self.last = nn.Linear(self.inputs, width), nn.Linear(width, self.outputs)
        self.layers = nn.ModuleList(make(width) for make in kinds)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.first(x))
        for layer in self.layers:
            x = layer(x)
        return self.last(x)

    def plain(self, x: Tensor) -> Tensor:
        """Evaluate the network with functions that torch differentiates correctly."""
        x = torch.tanh(self.first(x))
        for layer in self.layers:
            x = layer.plain(x)  # type: ignore[operator]
        return self.last(x)
