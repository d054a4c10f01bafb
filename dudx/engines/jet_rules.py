"""How each torch function acts on jets: one rule a function, in one table.

Functions that are linear share one rule, elementwise ones are given by their derivatives, bilinear ones by the product
rule; the rest is written in terms of these, on jets, as a person would write it on tensors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from dudx.engines.attention import multi_head_attention
from dudx.engines.jet import RULES, Jet, compose, product
from dudx.errors import UnsupportedError

Derivatives = Callable[[Tensor, int], list[Tensor]]


def taylor_rule(*functions: object) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register what the Taylor engine does for a torch function.

    The rule is called with the function's own arguments, of which at least one is a jet, and returns a jet. Most rules
    are a line in terms of functions that have one: `taylor_rule(F.hardswish)(lambda x: x * F.relu6(x + 3) / 6)`.
    """

    def register(rule: Callable[..., Any]) -> Callable[..., Any]:
        RULES.update(dict.fromkeys(functions, rule))
        return rule

    return register


def elementwise(*functions: object) -> Callable[[Derivatives], Derivatives]:
    """Register an elementwise function by `derivatives(x, n)`: its value and first n derivatives at x."""

    def register(derivatives: Derivatives) -> Derivatives:
        def rule(x: Jet) -> Jet:
            return compose(x, derivatives(x.value, x.layout.top))

        taylor_rule(*functions)(rule)
        return derivatives

    return register


def is_jet(value: object) -> bool:
    return isinstance(value, Jet)


def leaves(value: Any) -> list[Any]:
    """The arguments, also those inside lists."""
    return [leaf for item in value for leaf in leaves(item)] if isinstance(value, tuple | list) else [value]


def constant(layout_of: Jet, value: Any) -> Jet:
    """A number or tensor as a jet whose derivatives are all zero."""
    tensor = torch.as_tensor(value, dtype=layout_of.dtype, device=layout_of.device)
    return Jet(layout_of.layout, tensor, tensor.new_zeros(()).expand(layout_of.layout.streams, *tensor.shape))


# -- linear functions: the same function on every stream -------------------------------------------------------------


def linear(function: Callable[..., Any]) -> Callable[..., Any]:
    """The rule of a function that is linear in its jets, taken together."""

    def rule(*args: Any, **kwargs: Any) -> Any:
        jet = next(leaf for leaf in leaves((args, list(kwargs.values()))) if is_jet(leaf))
        args, kwargs = jets_of(jet, args), jets_of(jet, kwargs)
        value = function(*mapped(args, lambda j: j.value), **mapped(kwargs, lambda j: j.value))
        inner = [leaf for leaf in leaves((args, list(kwargs.values()))) if is_jet(leaf)]

        def on_streams(*streams: Tensor) -> Any:
            # vmap numbers axes for us, whatever the function calls them.
            given = iter(streams)
            replaced = [mapped(part, lambda j: next(given)) for part in (args, kwargs)]
            return function(*replaced[0], **replaced[1])

        streams = torch.func.vmap(on_streams)(*(j.full() for j in inner))
        if isinstance(value, Tensor):
            return Jet(jet.layout, value, streams)
        return tuple(Jet(jet.layout, v, s) for v, s in zip(value, streams, strict=True))

    return rule


def mapped(value: Any, replace: Callable[[Jet], Any]) -> Any:
    """The arguments with every jet replaced, also inside containers."""
    if isinstance(value, Jet):
        return replace(value)
    if isinstance(value, tuple | list):
        return type(value)(mapped(item, replace) for item in value)
    if isinstance(value, dict):
        return {key: mapped(item, replace) for key, item in value.items()}
    return value


def jets_of(jet: Jet, value: Any) -> Any:
    """The arguments with tensors that stand in a list beside jets made jets of derivative zero (for cat, stack)."""
    if isinstance(value, tuple):
        return tuple(jets_of(jet, item) for item in value)
    if isinstance(value, list) and any(is_jet(item) for item in value):
        return [item if is_jet(item) else constant(jet, item) for item in value]
    return value


_LINEAR = [
    "cat",
    "concat",
    "concatenate",
    "stack",
    "hstack",
    "vstack",
    "split",
    "chunk",
    "tensor_split",
    "unbind",
    "reshape",
    "flatten",
    "unflatten",
    "ravel",
    "transpose",
    "swapaxes",
    "permute",
    "movedim",
    "squeeze",
    "unsqueeze",
    "sum",
    "mean",
    "cumsum",
    "flip",
    "roll",
    "narrow",
    "select",
    "index_select",
    "broadcast_to",
    "tile",
    "repeat_interleave",
    "diagonal",
    "clone",
    "neg",
    "negative",
    "gather",
    "take_along_dim",
]
_LINEAR_METHODS = [
    "view",
    "view_as",
    "reshape_as",
    "expand",
    "expand_as",
    "repeat",
    "contiguous",
    "to",
    "float",
    "double",
    "type_as",
    "__getitem__",
]


def _register_linear() -> None:
    for name in _LINEAR:
        for owner in (torch, Tensor):
            function = getattr(owner, name, None)
            if function is not None:
                RULES[function] = linear(function)
    for name in _LINEAR_METHODS:
        RULES[getattr(Tensor, name)] = linear(getattr(Tensor, name))
    RULES[F.pad] = linear(F.pad)


_register_linear()


@taylor_rule(torch.add, Tensor.add, Tensor.__add__, Tensor.__radd__)
def add(a: Any, b: Any, *, alpha: float = 1) -> Jet:
    b = b if alpha == 1 else alpha * b
    if is_jet(a) and is_jet(b):
        value = a.value + b.value
        return Jet(a.layout, value, _aligned(a, value) + _aligned(b, value))
    jet, other = (a, b) if is_jet(a) else (b, a)
    value = jet.value + other
    return Jet(jet.layout, value, _aligned(jet, value))


def _aligned(jet: Jet, like: Tensor) -> Tensor:
    """The streams with as many axes as a result that broadcasting may give more axes than the jet has."""
    missing = like.ndim - jet.ndim
    return jet.streams.reshape(len(jet.streams), *[1] * missing, *jet.streams.shape[1:]) if missing > 0 else jet.streams


@taylor_rule(torch.sub, torch.subtract, Tensor.sub, Tensor.__sub__)
def sub(a: Any, b: Any, *, alpha: float = 1) -> Jet:
    b = b if alpha == 1 else alpha * b
    return add(a, -b)


@taylor_rule(torch.rsub, Tensor.__rsub__)
def rsub(a: Any, b: Any) -> Jet:
    return add(b, -a)


@taylor_rule(F.linear)
def linear_layer(x: Jet, weight: Any, bias: Any = None) -> Jet:
    if is_jet(weight) or is_jet(bias):
        out = matmul(x, weight.transpose(-1, -2))
        return out if bias is None else out + bias
    return Jet(x.layout, F.linear(x.value, weight, bias), F.linear(x.streams, weight))


@taylor_rule(F.dropout, torch.dropout)
def dropout(x: Jet, p: float = 0.5, training: bool = True, inplace: bool = False) -> Jet:
    if not training or p == 0:
        return x
    return x * F.dropout(torch.ones_like(x.value), p, training)


def _register_constants() -> None:
    """Functions of a tensor's shape alone: their results do not depend on the inputs."""
    for name in ("ones_like", "zeros_like", "empty_like", "full_like", "rand_like", "randn_like"):
        function = getattr(torch, name)
        RULES[function] = lambda x, *args, _make=function, **kwargs: _make(x.value, *args, **kwargs)
    for name in ("new_zeros", "new_ones", "new_tensor", "new_full", "new_empty", "detach"):
        method = getattr(Tensor, name)
        RULES[method] = lambda x, *args, _make=method, **kwargs: _make(x.value, *args, **kwargs)


_register_constants()


# -- bilinear functions: the product rule ----------------------------------------------------------------------------


@taylor_rule(torch.mul, torch.multiply, Tensor.mul, Tensor.__mul__, Tensor.__rmul__)
def mul(a: Any, b: Any) -> Jet:
    if is_jet(a) and is_jet(b):
        if a.ndim != b.ndim:
            a, b = (_with_axes(a, b.ndim), _with_axes(b, a.ndim))
        return product(torch.mul, a, b, lambda x, y, stacked: x * y)
    jet, other = (a, b) if is_jet(a) else (b, a)
    value = jet.value * other
    return Jet(jet.layout, value, _aligned(jet, value) * other)


def _with_axes(jet: Jet, ndim: int) -> Jet:
    """The same jet with leading axes of length 1, as broadcasting would add them."""
    missing = ndim - jet.ndim
    if missing <= 0:
        return jet
    return Jet(
        jet.layout, jet.value.reshape(*[1] * missing, *jet.shape), _aligned(jet, jet.value.new_empty([1] * ndim))
    )


def bilinear(function: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Any, Any], Jet]:
    """The rule of a function of two arguments that is linear in each."""

    def stacked(x: Tensor, y: Tensor, which: int) -> Tensor:
        return torch.func.vmap(function, in_dims=(0, None) if which == 0 else (None, 0))(x, y)

    def rule(a: Any, b: Any) -> Jet:
        if is_jet(a) and is_jet(b):
            a, b = (Jet(j.layout, j.value, j.full()) for j in (a, b))
            return product(function, a, b, stacked)
        if is_jet(a):
            return Jet(a.layout, function(a.value, b), stacked(a.full(), b, 0))
        return Jet(b.layout, function(a, b.value), stacked(a, b.full(), 1))

    return rule


matmul = bilinear(torch.matmul)
for _matrix_product in (
    torch.matmul,
    torch.mm,
    torch.bmm,
    torch.mv,
    Tensor.matmul,
    Tensor.mm,
    Tensor.bmm,
    Tensor.__matmul__,
):
    RULES[_matrix_product] = matmul
RULES[Tensor.__rmatmul__] = lambda a, b: matmul(b, a)


@taylor_rule(torch.addmm, Tensor.addmm, torch.baddbmm, Tensor.baddbmm)
def addmm(c: Any, a: Any, b: Any, *, beta: float = 1, alpha: float = 1) -> Jet:
    out = matmul(a, b) if is_jet(a) or is_jet(b) else a @ b
    return alpha * out + beta * c


@taylor_rule(torch.outer)
def outer(a: Any, b: Any) -> Jet:
    return a.unsqueeze(1) * b.unsqueeze(0)


@taylor_rule(torch.einsum)
def einsum(equation: str, *operands: Any) -> Jet:
    factors = list(operands[0] if len(operands) == 1 and isinstance(operands[0], tuple | list) else operands)
    if len(factors) == 1:
        return linear(lambda x: torch.einsum(equation, x))(factors[0])
    if len(factors) == 2:
        return bilinear(lambda x, y: torch.einsum(equation, x, y))(*factors)
    raise UnsupportedError("Taylor knows einsum of one or two operands; contract more of them step by step.")


# -- elementwise functions: the chain rule ---------------------------------------------------------------------------


def polynomials(first: Sequence[float], orders: int) -> list[list[float]]:
    """For y' = P(y): the polynomials that give y', y'', … in terms of y, by y⁽ⁿ⁺¹⁾ = (d/dy of the last) · P."""
    found = [list(first)]
    for _ in range(orders - 1):
        slope = [i * c for i, c in enumerate(found[-1])][1:]
        following = [0.0] * (len(slope) + len(first) - 1)
        for i, a in enumerate(slope):
            for j, b in enumerate(first):
                following[i + j] += a * b
        found.append(following)
    return found


def horner(coefficients: Sequence[float], y: Tensor) -> Tensor:
    """The polynomial with these coefficients, lowest power first, at y."""
    total: Any = coefficients[-1]
    for c in reversed(coefficients[:-1]):
        total = total * y + c if c else total * y
    return total


@elementwise(torch.tanh, Tensor.tanh, F.tanh)
def tanh(x: Tensor, n: int) -> list[Tensor]:
    t = torch.tanh(x)
    slope = 1 - t * t
    if n <= 2:
        return [t, slope, -2 * t * slope][: n + 1]
    # Every derivative has the first one as a factor; dividing it out keeps precision where tanh is flat.
    reduced = polynomials([1, 0, -1], n)
    return [t, slope, -2 * t * slope, *(slope * horner(_divided(p), t) for p in reduced[2:])]


def _divided(coefficients: Sequence[float]) -> list[float]:
    """A polynomial divided by 1 - y², without remainder."""
    quotient = [float(c) for c in coefficients[:2]]
    for c in coefficients[2:-2]:
        quotient.append(c + quotient[-2])
    return quotient


@elementwise(torch.sigmoid, Tensor.sigmoid, F.sigmoid)
def sigmoid(x: Tensor, n: int) -> list[Tensor]:
    s = torch.sigmoid(x)
    return [s, *(horner(p, s) for p in polynomials([0, 1, -1], n))]


@elementwise(torch.exp, Tensor.exp)
def exp(x: Tensor, n: int) -> list[Tensor]:
    return [torch.exp(x)] * (n + 1)


@elementwise(torch.expm1, Tensor.expm1)
def expm1(x: Tensor, n: int) -> list[Tensor]:
    return [torch.expm1(x), *[torch.exp(x)] * n]


@elementwise(torch.sin, Tensor.sin)
def sin(x: Tensor, n: int) -> list[Tensor]:
    s, c = torch.sin(x), torch.cos(x)
    return [(s, c, -s, -c)[k % 4] for k in range(n + 1)]


@elementwise(torch.cos, Tensor.cos)
def cos(x: Tensor, n: int) -> list[Tensor]:
    s, c = torch.sin(x), torch.cos(x)
    return [(c, -s, -c, s)[k % 4] for k in range(n + 1)]


@elementwise(torch.sinh, Tensor.sinh)
def sinh(x: Tensor, n: int) -> list[Tensor]:
    return [(torch.sinh(x), torch.cosh(x))[k % 2] for k in range(n + 1)]


@elementwise(torch.cosh, Tensor.cosh)
def cosh(x: Tensor, n: int) -> list[Tensor]:
    return [(torch.cosh(x), torch.sinh(x))[k % 2] for k in range(n + 1)]


@elementwise(torch.log, Tensor.log)
def log(x: Tensor, n: int) -> list[Tensor]:
    return [torch.log(x), *((-1) ** (k - 1) * math.factorial(k - 1) * x**-k for k in range(1, n + 1))]


@elementwise(torch.log1p, Tensor.log1p)
def log1p(x: Tensor, n: int) -> list[Tensor]:
    return [torch.log1p(x), *log(1 + x, n)[1:]]


def power(exponent: float) -> Derivatives:
    """X to a constant power."""

    def derivatives(x: Tensor, n: int) -> list[Tensor]:
        found, factor = [x**exponent], 1.0
        for k in range(1, n + 1):
            factor *= exponent - k + 1
            # Beyond the degree of a polynomial the power would be infinite at 0, and 0 times that no number.
            found.append(factor * x ** (exponent - k) if factor else torch.zeros_like(x))
        return found

    return derivatives


elementwise(torch.sqrt, Tensor.sqrt)(power(0.5))
elementwise(torch.rsqrt, Tensor.rsqrt)(power(-0.5))
elementwise(torch.reciprocal, Tensor.reciprocal)(power(-1))
elementwise(torch.square, Tensor.square)(power(2))


@elementwise(torch.erf, Tensor.erf)
def erf(x: Tensor, n: int) -> list[Tensor]:
    bell = 2 / math.sqrt(math.pi) * torch.exp(-x * x)
    hermite = [torch.ones_like(x), 2 * x]
    for k in range(2, n + 1):
        hermite.append(2 * x * hermite[-1] - 2 * (k - 1) * hermite[-2])
    return [torch.erf(x), *((-1) ** k * hermite[k] * bell for k in range(n))]


def _kinked(value: Tensor, slope: Tensor, n: int) -> list[Tensor]:
    """A piecewise linear function: at the kink the slope is the one autograd takes, curvature is zero everywhere."""
    return [value, slope, *[torch.zeros_like(value)] * (n - 1)]


@elementwise(torch.relu, Tensor.relu)
def relu(x: Tensor, n: int) -> list[Tensor]:
    return _kinked(torch.relu(x), (x > 0).to(x.dtype), n)


@elementwise(torch.abs, Tensor.abs, Tensor.__abs__)
def absolute(x: Tensor, n: int) -> list[Tensor]:
    return _kinked(torch.abs(x), torch.sign(x), n)


RULES[F.relu] = lambda x, inplace=False: RULES[torch.relu](x)


@taylor_rule(F.leaky_relu)
def leaky_relu(x: Jet, negative_slope: float = 0.01, inplace: bool = False) -> Jet:
    slope = torch.where(x.value > 0, torch.ones_like(x.value), torch.full_like(x.value, negative_slope))
    return compose(x, _kinked(slope * x.value, slope, x.layout.top))


@taylor_rule(F.elu)
def elu(x: Jet, alpha: float = 1.0, inplace: bool = False) -> Jet:
    # Where x is positive the exponential may overflow, so it is not computed there.
    decay = alpha * torch.exp(x.value.clamp(max=0))
    above = x.value > 0
    slope = torch.where(above, torch.ones_like(decay), decay)
    bent = torch.where(above, torch.zeros_like(decay), decay)
    return compose(x, [F.elu(x.value, alpha), slope, *[bent] * (x.layout.top - 1)])


@taylor_rule(F.softplus)
def softplus(x: Jet, beta: float = 1.0, threshold: float = 20.0) -> Jet:
    n = x.layout.top
    linear_part = beta * x.value > threshold  # where torch returns x itself
    slopes = sigmoid(beta * x.value, n - 1)
    ends = [torch.ones_like(x.value), *[torch.zeros_like(x.value)] * (n - 1)]
    derivatives = [
        torch.where(linear_part, end, beta**k * slope) for k, (end, slope) in enumerate(zip(ends, slopes, strict=True))
    ]
    return compose(x, [F.softplus(x.value, beta, threshold), *derivatives])


@taylor_rule(F.logsigmoid)
def logsigmoid(x: Jet) -> Jet:
    return -F.softplus(-x)  # type: ignore[operator]


@taylor_rule(F.silu)
def silu(x: Jet, inplace: bool = False) -> Jet:
    return x * torch.sigmoid(x)  # type: ignore[operator]


@taylor_rule(F.mish)
def mish(x: Jet, inplace: bool = False) -> Jet:
    return x * torch.tanh(F.softplus(x))  # type: ignore[operator]


@taylor_rule(F.gelu)
def gelu(x: Any, approximate: str = "none") -> Jet:
    if approximate == "tanh":
        return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))
    return 0.5 * x * (1 + torch.erf(x * math.sqrt(0.5)))


@taylor_rule(torch.div, torch.divide, torch.true_divide, Tensor.div, Tensor.__truediv__)
def div(a: Any, b: Any) -> Jet:
    return mul(a, torch.reciprocal(b)) if is_jet(b) else mul(a, 1 / b)


RULES[Tensor.__rtruediv__] = lambda a, b: div(b, a)


@taylor_rule(torch.pow, Tensor.pow, Tensor.__pow__)
def pow_(base: Any, exponent: Any) -> Jet:
    if is_jet(exponent):
        log_base = math.log(base) if isinstance(base, int | float) else torch.log(base)
        return torch.exp(exponent * log_base)  # type: ignore[return-value]
    if isinstance(exponent, Tensor):
        return torch.exp(exponent * torch.log(base))  # type: ignore[return-value]
    return compose(base, power(exponent)(base.value, base.layout.top))


RULES[Tensor.__rpow__] = lambda a, b: pow_(b, a)


@taylor_rule(torch.where)
def where(condition: Tensor, a: Any, b: Any) -> Jet:
    jet = a if is_jet(a) else b
    a, b = (side if is_jet(side) else constant(jet, side) for side in (a, b))
    return Jet(jet.layout, torch.where(condition, a.value, b.value), torch.where(condition, a.full(), b.full()))


for _name in ("gt", "ge", "lt", "le", "eq", "ne"):
    for _compare in (getattr(torch, _name), getattr(Tensor, _name), getattr(Tensor, f"__{_name}__")):
        RULES[_compare] = lambda a, b, _compare=_compare: _compare(
            a.value if is_jet(a) else a, b.value if is_jet(b) else b
        )


# -- layers: written on jets as they would be on tensors -------------------------------------------------------------


@taylor_rule(torch.softmax, Tensor.softmax, F.softmax)
def softmax(x: Any, dim: int = -1, dtype: torch.dtype | None = None, _stacklevel: int = 3) -> Jet:
    weights = torch.exp(x - x.value.detach().amax(dim, keepdim=True))
    return weights / weights.sum(dim, keepdim=True)  # type: ignore[operator,union-attr]


@taylor_rule(torch.var, Tensor.var)
def var(
    x: Any, dim: Any = None, unbiased: bool = True, keepdim: bool = False, *, correction: float | None = None
) -> Jet:
    axes = tuple(range(x.ndim)) if dim is None else dim
    centred = x - x.mean(axes, keepdim=True)
    total = (centred * centred).sum(axes, keepdim=keepdim)
    count = x.numel() / math.prod(total.shape if dim is not None else [1])
    return total / (count - (int(unbiased) if correction is None else correction))


@taylor_rule(torch.std, Tensor.std)
def std(*args: Any, **kwargs: Any) -> Jet:
    return torch.sqrt(var(*args, **kwargs))  # type: ignore[arg-type,return-value]


@taylor_rule(F.layer_norm, torch.layer_norm)
def layer_norm(
    x: Any, normalized_shape: Sequence[int], weight: Any = None, bias: Any = None, eps: float = 1e-5, *rest: Any
) -> Jet:
    axes = tuple(range(-len(normalized_shape), 0))
    centred = x - x.mean(axes, keepdim=True)
    out = centred * torch.rsqrt((centred * centred).mean(axes, keepdim=True) + eps)
    out = out if weight is None else out * weight
    return out if bias is None else out + bias


def _channels(x: Any, value: Any) -> Any:
    """A weight for each channel, shaped to meet x of shape (B, channels, …)."""
    return value.reshape(1, -1, *[1] * (x.ndim - 2))


@taylor_rule(F.group_norm, torch.group_norm)
def group_norm(x: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5, *rest: Any) -> Jet:
    grouped = x.reshape(x.shape[0], num_groups, -1)
    out = layer_norm(grouped, (grouped.shape[-1],), eps=eps).reshape(*x.shape)
    out = out if weight is None else out * _channels(x, weight)
    return out if bias is None else out + _channels(x, bias)


@taylor_rule(F.rms_norm, torch.rms_norm)
def rms_norm(x: Any, normalized_shape: Sequence[int], weight: Any = None, eps: float | None = None) -> Jet:
    axes = tuple(range(-len(normalized_shape), 0))
    eps = torch.finfo(x.dtype).eps if eps is None else eps
    out = x * torch.rsqrt((x * x).mean(axes, keepdim=True) + eps)
    return out if weight is None else out * weight


@taylor_rule(F.instance_norm)
def instance_norm(
    x: Any,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Any = None,
    bias: Any = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Jet:
    if not use_input_stats:
        return batch_norm(x, running_mean, running_var, weight, bias, False, momentum, eps)
    return group_norm(x, x.shape[1], weight, bias, eps)


@taylor_rule(F.normalize)
def normalize(x: Any, p: float = 2.0, dim: int = 1, eps: float = 1e-12, out: Any = None) -> Jet:
    if p != 2 or out is not None:
        raise UnsupportedError("Taylor knows normalize for the Euclidean length; use dudx.AD() for others.")
    # Where the length is below eps torch divides by eps instead, so that zero stays zero.
    squares = (x * x).sum(dim, keepdim=True)
    small = squares.value <= eps**2
    inverse = torch.rsqrt(torch.where(small, torch.ones_like(squares), squares))
    return x * torch.where(small, torch.full_like(squares, 1 / eps), inverse)


@taylor_rule(F.glu)
def glu(x: Any, dim: int = -1) -> Jet:
    value, gate = x.chunk(2, dim)
    return value * torch.sigmoid(gate)


def _convolution(function: Callable[..., Tensor]) -> Callable[..., Jet]:
    """A convolution with a constant kernel is linear, and a bias moves only the value."""

    def rule(x: Jet, weight: Tensor, bias: Tensor | None = None, *args: Any, **kwargs: Any) -> Jet:
        if is_jet(weight) or is_jet(bias):
            raise UnsupportedError("Taylor knows convolutions with constant kernels; use dudx.AD() for others.")
        out = linear(lambda t: function(t, weight, None, *args, **kwargs))(x)
        return out if bias is None else out + _channels(out, bias)

    return rule


for _function in (F.conv1d, F.conv2d, F.conv3d):
    RULES[_function] = _convolution(_function)


@taylor_rule(F.batch_norm, torch.batch_norm)
def batch_norm(
    x: Any,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Jet:
    if training or running_mean is None or running_var is None:
        raise UnsupportedError(
            "Taylor differentiates each sample by itself, and batch norm in training mode mixes samples; use "
            "dudx.isolate(model, x) as the model, or model.eval()."
        )
    scale = torch.rsqrt(running_var + eps)
    scale = scale if weight is None else scale * weight
    shift = -running_mean * scale
    shift = shift if bias is None else shift + bias
    return x * _channels(x, scale) + _channels(x, shift)


@taylor_rule(F.scaled_dot_product_attention)
def attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Jet:
    if dropout_p or enable_gqa:
        raise UnsupportedError("Taylor knows attention without dropout and with as many key heads as query heads.")
    scores = query @ key.transpose(-2, -1) * (query.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        attn_mask = torch.zeros_like(attn_mask, dtype=scores.dtype).masked_fill(~attn_mask, -torch.inf)
    weights = softmax(scores if attn_mask is None else scores + attn_mask)
    return weights @ value


@taylor_rule(F.multi_head_attention_forward)
def multi_head_attention_on_jets(*args: Any, **kwargs: Any) -> tuple[Jet, None]:
    def attend(q: Any, k: Any, v: Any, mask: Tensor | None, is_causal: bool) -> Jet:
        return attention(q, k, v, mask, is_causal=is_causal)

    return multi_head_attention(attend, *args, **kwargs)
