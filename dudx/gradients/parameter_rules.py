"""Rules of the recorder: one for each kind of use of a parameter; layers are composed of these."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from dudx.backend.attention_layers import multi_head_attention
from dudx.engines.taylor.jet import Jet
from dudx.errors import UnsupportedError
from dudx.gradients.parameter_recorder import RULES, Root, RowRecorder


def rule(*functions: object) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a rule for torch functions, called with the recorder, the function, its args and its kwargs."""

    def register(made: Callable[..., Any]) -> Callable[..., Any]:
        RULES.update(dict.fromkeys(functions, made))
        return made

    return register


def layer(*functions: object) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a rule called with the recorder and the function's own arguments."""

    def register(made: Callable[..., Any]) -> Callable[..., Any]:
        rule(*functions)(lambda recorder, function, args, kwargs: made(recorder, *args, **kwargs))
        return made

    return register


def layer_with_name(*functions: object) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a rule for several functions, which receives the function as an argument."""

    def register(made: Callable[..., Any]) -> Callable[..., Any]:
        rule(*functions)(lambda recorder, function, args, kwargs: made(recorder, function, *args, **kwargs))
        return made

    return register


# -- products with a weight --------------------------------------------------------------------------------------------


@layer(F.linear)
def linear(recorder: RowRecorder, x: Any, weight: Any, bias: Any = None) -> Any:
    """Linear layer x Wᵀ + b, with the weight, the bias or both recorded."""
    root = recorder.root(weight)
    if isinstance(x, Jet) or recorder.root(x) is not None or (root is not None and weight.ndim != 2):
        return NotImplemented
    if root is None:  # only the bias is one
        out = F.linear(x, weight)
    else:
        out = recorder.product(x, root)
        if out is None:
            return NotImplemented
    return out if bias is None else recorder.seen(torch.add, out, bias)


@layer(torch.matmul, torch.mm, Tensor.matmul, Tensor.mm, Tensor.__matmul__)
def matmul(recorder: RowRecorder, a: Any, b: Any) -> Any:
    """Product with a weight on either side, as a linear layer."""
    left, right = recorder.root(a), recorder.root(b)
    if (left is None) == (right is None) or min(a.ndim, b.ndim) < 2:
        return NotImplemented
    if right is not None:
        return recorder.seen(lambda: F.linear(a, b.T)) if b.ndim == 2 else NotImplemented
    return recorder.seen(lambda: F.linear(b.transpose(-1, -2), a).transpose(-1, -2)) if a.ndim == 2 else NotImplemented


rule(Tensor.__rmatmul__)(lambda recorder, function, args, kwargs: matmul(recorder, args[1], args[0]))


@layer(torch.addmm, Tensor.addmm)
def addmm(recorder: RowRecorder, c: Any, a: Any, b: Any, *, beta: float = 1, alpha: float = 1) -> Any:
    """Sum of a tensor and a product of matrices."""
    return recorder.seen(lambda: torch.add(beta * c, alpha * torch.matmul(a, b)))


# -- elementwise uses --------------------------------------------------------------------------------------------------


def elementwise(recorder: RowRecorder, function: Any, args: Any, kwargs: Any) -> Any:
    """Elementwise function: each root is repeated for each row of the result, which must have an axis of samples."""
    values = [*args, *kwargs.values()]
    if any(isinstance(value, Jet) for value in values) or (_in_place(function) and recorder.root(args[0])):
        return NotImplemented
    others = [value for value in values if isinstance(value, Tensor) and recorder.root(value) is None]
    if not others:
        return NotImplemented
    shape = torch.broadcast_shapes(*(value.shape for value in values if isinstance(value, Tensor)))
    if all(not other.requires_grad and other.numel() % recorder.samples for other in others):
        return NotImplemented  # a constant of another size: nothing here depends on the samples
    if any(recorder.sample_axis(shape, _own_axes(root, shape)) is None for root in map(recorder.root, values) if root):
        return NotImplemented

    def replaced(value: Any) -> Any:
        root = recorder.root(value)
        return value if root is None else recorder.tapped(root, shape)

    return function(*map(replaced, args), **{name: replaced(value) for name, value in kwargs.items()})


def _in_place(function: Any) -> bool:
    name = getattr(function, "__name__", "")
    return name.startswith("__i") or (name.endswith("_") and not name.endswith("__"))


def _own_axes(root: Root, shape: Sequence[int]) -> list[int]:
    shift = len(shape) - root.leaf.ndim
    return [shift + axis for axis, length in enumerate(root.leaf.shape) if length > 1]


for _name in ("add", "sub", "mul", "div", "pow", "rsub", "maximum", "minimum", "where", "addcmul", "addcdiv", "lerp"):
    for _home in (torch, Tensor):
        if hasattr(_home, _name):
            rule(getattr(_home, _name))(elementwise)
for _name in ("add", "radd", "sub", "rsub", "mul", "rmul", "truediv", "rtruediv", "pow", "rpow"):
    rule(getattr(Tensor, f"__{_name}__"))(elementwise)
for _name in ("add_", "sub_", "mul_", "div_", "__iadd__", "__isub__", "__imul__", "__itruediv__"):
    rule(getattr(Tensor, _name))(elementwise)
rule(torch.subtract, torch.multiply, torch.divide, torch.true_divide)(elementwise)


@rule(Tensor.expand, Tensor.expand_as, torch.broadcast_to, Tensor.broadcast_to)
def expand(recorder: RowRecorder, function: Any, args: Any, kwargs: Any) -> Any:
    """Parameter repeated for the samples, such as a token."""
    root = recorder.root(args[0])
    if root is None:
        return NotImplemented
    with torch.no_grad():
        shape = function(*args, **kwargs).shape
    return NotImplemented if (tap := recorder.tapped(root, shape)) is None else tap


# -- layers in terms of these ------------------------------------------------------------------------------------------


def _affine(recorder: RowRecorder, normal: Any, weight: Any, bias: Any) -> Any:
    """Scale and shift after a normalisation."""
    out = normal if weight is None else recorder.seen(torch.mul, normal, weight)
    return out if bias is None else recorder.seen(torch.add, out, bias)


def _by_channel(recorder: RowRecorder, normal: Any, weight: Any, bias: Any) -> Any:
    """Scale and shift normalised values (B, channels, …) with a number per channel."""
    shape = (-1, *[1] * (normal.ndim - 2))
    scale, shift = (None if p is None else recorder.seen(Tensor.reshape, p, shape) for p in (weight, bias))
    return _affine(recorder, normal, scale, shift)


@layer(F.layer_norm, torch.layer_norm)
def layer_norm(
    recorder: RowRecorder, x: Any, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> Any:  # fmt: skip
    """Layer norm: normalisation without parameters, then scale and shift."""
    if isinstance(x, Jet):
        return NotImplemented
    return _affine(recorder, F.layer_norm(x, normalized_shape, None, None, eps), weight, bias)


@layer(F.rms_norm, torch.rms_norm)
def rms_norm(recorder: RowRecorder, x: Any, normalized_shape: Any, weight: Any = None, eps: float | None = None) -> Any:
    """Record RMS normalisation: a scale without a shift."""
    if isinstance(x, Jet):
        return NotImplemented
    return _affine(recorder, F.rms_norm(x, normalized_shape, None, eps), weight, None)


@layer(F.group_norm, torch.group_norm)
def group_norm(
    recorder: RowRecorder, x: Any, groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> Any:  # fmt: skip
    """Record group normalisation: a scale and a shift per channel."""
    if isinstance(x, Jet):
        return NotImplemented
    return _by_channel(recorder, F.group_norm(x, groups, None, None, eps), weight, bias)


@layer(F.batch_norm)
def batch_norm(
    recorder: RowRecorder, x: Any, mean: Any, var: Any, weight: Any = None, bias: Any = None, training: bool = False,
    momentum: float = 0.1, eps: float = 1e-5,
) -> Any:  # fmt: skip
    """Batch norm in evaluation mode, a fixed normalisation; networks in training mode are refused earlier."""
    if isinstance(x, Jet):
        return NotImplemented
    return _by_channel(recorder, F.batch_norm(x, mean, var, None, None, training, momentum, eps), weight, bias)


@layer(torch.batch_norm)
def torch_batch_norm(
    recorder: RowRecorder, x: Any, weight: Any, bias: Any, mean: Any, var: Any, training: bool, momentum: float,
    eps: float, cudnn_enabled: bool,
) -> Any:  # fmt: skip
    """Record `torch.batch_norm`, whose arguments have another order than those of `F.batch_norm`."""
    return batch_norm(recorder, x, mean, var, weight, bias, training, momentum, eps)


@layer(F.multi_head_attention_forward)
def attention(recorder: RowRecorder, *args: Any, **kwargs: Any) -> Any:
    """Attention: projections are linear layers, and the rest has no parameters."""
    if any(isinstance(value, Jet) for value in (*args, *kwargs.values())):
        return NotImplemented
    if kwargs.get("key_padding_mask") is not None or kwargs.get("attn_mask") is not None:
        return NotImplemented

    def attend(q: Tensor, k: Tensor, v: Tensor, masks: Sequence[Tensor], is_causal: bool) -> tuple[Tensor, Tensor]:
        weights = torch.softmax(torch.matmul(q, k.transpose(-2, -1)) * q.shape[-1] ** -0.5, dim=-1)
        return torch.matmul(weights, v), weights

    try:
        return recorder.seen(multi_head_attention, attend, *args, **kwargs)
    except UnsupportedError:  # an unsupported variant has no rule
        return NotImplemented


# -- a weight for each sample ------------------------------------------------------------------------------------------


def per_sample(recorder: RowRecorder, function: Any, args: Any, kwargs: Any) -> Any:
    """Layer with a copy of its parameters per sample, computed in one call by vmap (a grouped convolution)."""
    x, *others = args
    if not isinstance(x, Tensor) or recorder.root(x) is not None or x.ndim == 0 or len(x) % recorder.samples:
        return NotImplemented
    given = [*others, *kwargs.values()]
    # One copy for each sample: the shape is (samples, *parameter).
    taps: list[Any] = []
    for value in given:
        root = recorder.root(value)
        taps.append(value if root is None else recorder.tapped_by_sample(root))
    axes = tuple(0 if recorder.root(value) is not None else None for value in given)
    names = list(kwargs)

    def one(rows: Tensor, *values: Any) -> Tensor:
        plain, named = values[: len(others)], values[len(others) :]
        return function(rows, *plain, **dict(zip(names, named, strict=True)))

    rows = x.unflatten(0, (-1, recorder.samples))
    return torch.func.vmap(one, in_dims=(1, *axes), out_dims=1)(rows, *taps).flatten(0, 1)


rule(F.embedding)(per_sample)


@layer_with_name(F.conv1d, F.conv2d, F.conv3d, F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)
def convolution(
    recorder: RowRecorder, function: Any, x: Any, weight: Any, bias: Any = None, *args: Any, **kwargs: Any
) -> Any:
    """Convolution with a kernel per sample; the bias is an elementwise sum."""
    batched = x.ndim == weight.ndim
    if bias is not None and batched:
        out = recorder.seen(function, x, weight, None, *args, **kwargs)
        return recorder.seen(lambda: out + bias.reshape(-1, *[1] * (x.ndim - 2)))
    if not isinstance(x, Jet):
        return per_sample(recorder, function, (x, weight, bias, *args), kwargs) if batched else NotImplemented
    if not batched:
        return NotImplemented
    value = recorder.seen(function, x.value, weight, None, *args, **kwargs)
    # Streams and samples share one axis, as nodes of a stencil do.
    streams = recorder.seen(function, x.full().flatten(0, 1), weight, None, *args, **kwargs)
    return Jet(x.layout, value, streams.unflatten(0, (x.layout.streams, -1)))
