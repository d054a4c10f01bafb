"""Functions that are linear in their jets: they apply to value and streams alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from dudx.backend.containers import flattened, mapped
from dudx.engines.taylor.inplace import noted
from dudx.engines.taylor.jet import Jet, constant
from dudx.engines.taylor.rule_helpers import is_jet, values_of
from dudx.engines.taylor.rule_table import RULES, NotCoveredError, taylor_rule


def linear(function: Callable[..., Any], of_streams: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """Return the rule of a function that is linear in all its jets together.

    Args:
        function: the function.
        of_streams: an equivalent function for streams, if it must differ.
    """
    of_streams = of_streams or function

    def rule(*args: Any, **kwargs: Any) -> Any:
        if kwargs.get("out") is not None:
            raise NotCoveredError
        jet = next(leaf for leaf in flattened((args, list(kwargs.values()))) if is_jet(leaf))
        args = tuple(jets_of(jet, value) for value in args)
        kwargs = {name: jets_of(jet, value) for name, value in kwargs.items()}
        value = function(*mapped(args, values_of), **mapped(kwargs, values_of))
        inner = [leaf for leaf in flattened((args, list(kwargs.values()))) if is_jet(leaf)]

        def on_streams(*streams: Tensor) -> Any:
            # vmap hides the axis of streams, so that the function's arguments for axes stay valid.
            given = iter(streams)
            replaced = [mapped(part, lambda leaf: next(given) if is_jet(leaf) else leaf) for part in (args, kwargs)]
            return of_streams(*replaced[0], **replaced[1])

        streams = torch.func.vmap(on_streams)(*(j.full() for j in inner))
        if isinstance(value, Tensor):
            result = Jet(jet.layout, value, streams)
            return noted(result, jet, on_streams) if len(inner) == 1 else result
        results = [Jet(jet.layout, v, s) for v, s in zip(value, streams, strict=True)]
        if len(inner) == 1:
            for number, result in enumerate(results):
                noted(result, jet, lambda t, number=number: on_streams(t)[number])
        return tuple(results)

    return rule


def jets_of(jet: Jet, value: Any) -> Any:
    """Return an argument with the tensors in a sequence of jets converted to constant jets, as cat and stack need."""
    if isinstance(value, tuple | list) and any(is_jet(item) for item in value):
        return [item if is_jet(item) else constant(jet, item) for item in value]
    return value


_LINEAR = [
    "stack", "hstack", "vstack", "split", "chunk", "tensor_split", "unbind",
    "reshape", "flatten", "unflatten", "ravel", "transpose", "swapaxes", "permute", "movedim", "squeeze",
    "unsqueeze", "sum", "mean", "cumsum", "flip", "roll", "narrow", "select", "index_select", "broadcast_to",
    "tile", "repeat_interleave", "diagonal", "clone", "neg", "negative", "gather", "take_along_dim", "dstack",
    "column_stack", "row_stack", "hsplit", "vsplit", "dsplit", "moveaxis", "swapdims", "t", "fliplr", "flipud", "rot90",
    "diag", "diag_embed", "diagflat", "tril", "triu", "trace", "take", "masked_select", "as_strided", "block_diag",
    "atleast_1d", "atleast_2d", "atleast_3d", "nansum", "nanmean", "adjoint", "diff", "unfold_copy", "alias_copy",
    "positive", "deg2rad", "rad2deg", "real", "imag", "conj", "conj_physical", "resolve_conj", "resolve_neg",
    "view_as_real", "view_as_complex", "complex", "combinations", "channel_shuffle", "pixel_shuffle",
    "pixel_unshuffle", "adaptive_avg_pool1d", "stft", "istft", "trapezoid", "trapz", "cumulative_trapezoid",
]  # fmt: skip
_LINEAR_METHODS = ["expand", "repeat", "contiguous", "float", "double", "half", "bfloat16", "__getitem__", "unfold",
    "sum_to_size", "cfloat", "cdouble"]  # fmt: skip
_LINEAR_ATTRIBUTES = ["T", "mT", "H", "mH", "real", "imag"]
_LINEAR_LAYERS = [
    "avg_pool1d", "avg_pool2d", "avg_pool3d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "fold", "unfold",
    "interpolate", "upsample", "pixel_shuffle", "pixel_unshuffle",
]  # fmt: skip
_FOURIER = [
    "fft", "ifft", "fft2", "ifft2", "fftn", "ifftn", "rfft", "irfft", "rfft2", "irfft2", "rfftn", "irfftn", "hfft",
    "ihfft", "hfft2", "ihfft2", "hfftn", "ihfftn", "fftshift", "ifftshift",
]  # fmt: skip
_LIKE_ANOTHER = ["view_as", "reshape_as", "expand_as", "to", "type_as"]


def like_another(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the rule of a method that reads only the shape or dtype of its other arguments."""
    transformed = linear(function, Tensor.reshape_as if function is Tensor.view_as else function)

    def rule(x: Any, *others: Any, **kwargs: Any) -> Any:
        others, kwargs = (mapped(part, values_of) for part in (others, kwargs))
        if not is_jet(x):
            return function(x, *others, **kwargs)
        now = transformed(x, *others, **kwargs)
        # Integers and booleans are piecewise constant.
        return now if now.value.is_floating_point() or now.value.is_complex() else now.value

    return rule


def _register_linear() -> None:
    for name in _LINEAR:
        for owner in (torch, Tensor):
            function = getattr(owner, name, None)
            if function is not None:
                RULES[function] = linear(function)
    for owner, names in ((Tensor, _LINEAR_METHODS), (F, _LINEAR_LAYERS), (torch.fft, _FOURIER)):
        for name in names:
            RULES[getattr(owner, name)] = linear(getattr(owner, name))
    for name in _LINEAR_ATTRIBUTES:
        RULES[getattr(Tensor, name).__get__] = linear(lambda x, name=name: getattr(x, name))
    RULES[torch.linalg.diagonal] = linear(torch.linalg.diagonal)
    RULES[torch.ops.aten.slice.Tensor] = linear(torch.ops.aten.slice.Tensor)
    # Expanded streams cannot be viewed in another shape, so they are reshaped.
    RULES[Tensor.view] = linear(Tensor.view, Tensor.reshape)
    for name in _LIKE_ANOTHER:
        RULES[getattr(Tensor, name)] = like_another(getattr(Tensor, name))


_register_linear()


@taylor_rule(torch.cat, torch.concat, torch.concatenate)
def cat(tensors: Any, dim: int = 0, **other: Any) -> Jet:
    # Not by vmap, in which torch compiles torch.cat for fixed sizes and warns about it.
    if other or not isinstance(tensors, tuple | list):
        return linear(torch.cat)(tensors, dim, **other)
    jet = next(item for item in tensors if is_jet(item))
    jets: list[Jet] = jets_of(jet, tensors)
    value = torch.cat([j.value for j in jets], dim)
    if any(j.value.ndim != value.ndim for j in jets):  # an empty tensor, which torch skips
        return linear(torch.cat)(tensors, dim)
    return Jet(jet.layout, value, torch.cat([j.full() for j in jets], dim + (dim >= 0)))


@taylor_rule(F.pad)
def pad(x: Jet, pad: Any, mode: str = "constant", value: float | None = None) -> Jet:
    # The padding value is constant, so streams are padded with zeros.
    out = linear(lambda t: F.pad(t, pad, mode))(x)
    return Jet(x.layout, F.pad(x.value, pad, mode, value), out.streams) if value else out


def _register_constants() -> None:
    """Register functions of a tensor's shape and dtype alone, whose results are constant."""
    for name in ("ones_like", "zeros_like", "empty_like", "full_like", "rand_like", "randn_like"):
        function = getattr(torch, name)
        RULES[function] = lambda x, *args, _make=function, **kwargs: _make(x.value, *args, **kwargs)
    for name in ("new_zeros", "new_ones", "new_tensor", "new_full", "new_empty", "detach"):
        method = getattr(Tensor, name)
        RULES[method] = lambda x, *args, _make=method, **kwargs: _make(x.value, *args, **kwargs)


_register_constants()
