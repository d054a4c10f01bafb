"""How each torch function acts on jets: one rule a function, in one table.

Functions that are linear share one rule, elementwise ones are given by their derivatives, bilinear ones by the product
rule; the rest is written in terms of these, on jets, as a person would write it on tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from dudx.engines.taylor.jet import RULES, Jet
from dudx.engines.taylor.laws import compose, product
from dudx.errors import UnsupportedError

Derivatives = Callable[[Tensor, int], list[Tensor]]


def taylor_rule(*functions: object) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register what the Taylor engine does for a torch function.

    The rule is called with the function's own arguments, of which at least one is a jet, and returns a jet. Most rules
    are a line in terms of functions that have one: `taylor_rule(F.softsign)(lambda x: x / (1 + torch.abs(x)))`.

    Example:
        >>> @dudx.taylor_rule(torch.special.logit)
        ... def logit(x):
        ...     return torch.log(x / (1 - x))
        >>> x = torch.full((1, 1), 0.5)
        >>> dudx.evaluate(torch.special.logit, x, dudx.D(0), dudx.Taylor()).item()
        4.0
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
    # A tensor keeps its precision, which torch would take into account; a number has none.
    dtype = value.dtype if isinstance(value, Tensor) else layout_of.dtype
    tensor = torch.as_tensor(value, dtype=dtype, device=layout_of.device)
    return Jet(layout_of.layout, tensor, tensor.new_zeros(()).expand(layout_of.layout.streams, *tensor.shape))


def written(x: Jet, result: Jet, inplace: bool) -> Jet:
    """The result of a function, which is also the content of its argument from now on if it works in place."""
    return x._become(result) if inplace else result


# -- linear functions: the same function on every stream -------------------------------------------------------------


def linear(function: Callable[..., Any], of_streams: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """The rule of a function that is linear in its jets, taken together. Streams may take another for the same."""
    of_streams = of_streams or function
    views = getattr(function, "__name__", "") in _VIEWS

    def rule(*args: Any, **kwargs: Any) -> Any:
        jet = next(leaf for leaf in leaves((args, list(kwargs.values()))) if is_jet(leaf))
        args = tuple(jets_of(jet, value) for value in args)
        kwargs = {name: jets_of(jet, value) for name, value in kwargs.items()}
        value = function(*mapped(args, lambda j: j.value), **mapped(kwargs, lambda j: j.value))
        inner = [leaf for leaf in leaves((args, list(kwargs.values()))) if is_jet(leaf)]

        def on_streams(*streams: Tensor) -> Any:
            # vmap numbers axes for us, whatever the function calls them.
            given = iter(streams)
            replaced = [mapped(part, lambda j: next(given)) for part in (args, kwargs)]
            return of_streams(*replaced[0], **replaced[1])

        streams = torch.func.vmap(on_streams)(*(j.full() for j in inner))
        if isinstance(value, Tensor):
            made: Any = Jet(jet.layout, value, streams)
        else:
            made = tuple(Jet(jet.layout, v, s) for v, s in zip(value, streams, strict=True))
        if views and not torch.compiler.is_compiling():
            jet.shares_memory_with([made] if is_jet(made) else made)
        return made

    return rule


#: What may return a view of its argument.
_VIEWS = {
    "split", "chunk", "tensor_split", "unbind", "reshape", "flatten", "unflatten", "ravel", "transpose", "swapaxes",
    "permute", "movedim", "squeeze", "unsqueeze", "narrow", "select", "broadcast_to", "diagonal", "expand",
    "contiguous", "float", "double", "__getitem__", "view", "view_as", "reshape_as", "expand_as", "to", "type_as",
}  # fmt: skip


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
    """An argument in which tensors beside jets in a sequence are jets of derivative zero (for cat, stack)."""
    if isinstance(value, tuple | list) and any(is_jet(item) for item in value):
        return [item if is_jet(item) else constant(jet, item) for item in value]
    return value


_LINEAR = [
    "cat", "concat", "concatenate", "stack", "hstack", "vstack", "split", "chunk", "tensor_split", "unbind",
    "reshape", "flatten", "unflatten", "ravel", "transpose", "swapaxes", "permute", "movedim", "squeeze",
    "unsqueeze", "sum", "mean", "cumsum", "flip", "roll", "narrow", "select", "index_select", "broadcast_to",
    "tile", "repeat_interleave", "diagonal", "clone", "neg", "negative", "gather", "take_along_dim",
]  # fmt: skip
_LINEAR_METHODS = ["expand", "repeat", "contiguous", "float", "double", "__getitem__"]
_LIKE_ANOTHER = ["view_as", "reshape_as", "expand_as", "to", "type_as"]


def like_another(function: Callable[..., Any]) -> Callable[..., Any]:
    """The rule of a method that takes only a shape or a type from its other arguments."""
    transformed = linear(function, Tensor.reshape_as if function is Tensor.view_as else function)

    def rule(x: Any, *others: Any, **kwargs: Any) -> Any:
        others, kwargs = (mapped(part, lambda j: j.value) for part in (others, kwargs))
        if not is_jet(x):
            return function(x, *others, **kwargs)
        now = transformed(x, *others, **kwargs)
        # Whole numbers and truth values move in jumps: between these they are constant.
        return now if now.value.is_floating_point() or now.value.is_complex() else now.value

    return rule


def _register_linear() -> None:
    for name in _LINEAR:
        for owner in (torch, Tensor):
            function = getattr(owner, name, None)
            if function is not None:
                RULES[function] = linear(function)
    for name in _LINEAR_METHODS:
        RULES[getattr(Tensor, name)] = linear(getattr(Tensor, name))
    # Streams that are the same at every point have no memory of their own that could be seen in another shape.
    RULES[Tensor.view] = linear(Tensor.view, Tensor.reshape)
    for name in _LIKE_ANOTHER:
        RULES[getattr(Tensor, name)] = like_another(getattr(Tensor, name))


_register_linear()


@taylor_rule(F.pad)
def pad(x: Jet, pad: Any, mode: str = "constant", value: float | None = None) -> Jet:
    # What it is padded with is a constant, so streams are padded with zeros.
    out = linear(lambda t: F.pad(t, pad, mode))(x)
    return Jet(x.layout, F.pad(x.value, pad, mode, value), out.streams) if value else out


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


#: A layer is narrow if it has this many times more inputs than outputs.
_NARROW = 8


#: Layers with fewer activations than this take less time than a call: one product for value and streams is better
#: than two. (Width 24 gains a tenth of a step by it, width 128 at 1024 points would lose as much.)
_SMALL = 2**15


def _small(x: Jet) -> bool:
    return x.value.numel() <= _SMALL and all(part.shape[1:] == x.value.shape for part in x.parts)


@taylor_rule(F.linear)
def linear_layer(x: Jet, weight: Any, bias: Any = None) -> Jet:
    if is_jet(weight) or is_jet(bias):
        out = matmul(x, weight.transpose(-1, -2))
        return out if bias is None else out + bias
    if torch.compiler.is_compiling() and _small(x):
        # In a compiled graph what comes before writes its results side by side: putting them together costs nothing.
        stack = F.linear(torch.cat([x.value.unsqueeze(0), *x.parts]), weight)
        return Jet(x.layout, stack[0] if bias is None else stack[0] + bias, stack[1:])
    # A last layer is narrow and costs little, however it is called; of its results often a single stream is wanted, and
    # nothing is to be put together or differentiated for the others.
    parts = x.parts if _NARROW * weight.shape[0] <= weight.shape[-1] else (x.streams,)
    # A part may be the same for all features, which the product has to sum over.
    wide = [part.expand(*part.shape[:-1], x.shape[-1]) for part in parts]
    return Jet(x.layout, F.linear(x.value, weight, bias), *(F.linear(part, weight) for part in wide))


@taylor_rule(F.dropout, torch.dropout)
def dropout(x: Jet, p: float = 0.5, training: bool = True, inplace: bool = False) -> Jet:
    if not training or p == 0:
        return x
    return written(x, mul(x, F.dropout(torch.ones_like(x.value), p, training)), inplace)


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
            a, b = (with_axes(a, b.ndim), with_axes(b, a.ndim))
        return product(torch.mul, a, b, lambda x, y, stacked: x * y)
    jet, other = (a, b) if is_jet(a) else (b, a)
    value = jet.value * other
    return Jet(jet.layout, value, _aligned(jet, value) * other)


def with_axes(jet: Jet, ndim: int) -> Jet:
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
    Tensor.mm,
    Tensor.bmm,
    Tensor.__matmul__,
):
    RULES[_matrix_product] = matmul
RULES[Tensor.__rmatmul__] = lambda a, b: matmul(b, a)


@taylor_rule(Tensor.matmul)
def matmul_method(a: Any, b: Any) -> Jet:
    # torch.compile calls weight.matmul(x) for x @ weight as well as for weight @ x, and square factors hide it.
    if torch.compiler.is_compiling() and not is_jet(a):
        raise UnsupportedError(
            "torch.compile mistakes the order of x @ weight for jets; write torch.matmul(x, weight)."
        )
    return matmul(a, b)


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
