"""Checks of a model and of its output; engines call every model through `forward`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, nn

from dudx.backend.fused_kernels import from_control_flow
from dudx.errors import DudxError, InputError, ModelError, UnsupportedError, first_line

Model = Callable[[Tensor], Tensor]


def model(candidate: object, x: Tensor) -> Model:
    """Check that a model is callable and has the device and dtype of the points; return it."""
    if not callable(candidate):
        raise InputError(f"The model must be callable, from (B, d) to (B, m); got {type(candidate).__name__}.")
    if isinstance(candidate, type):
        raise InputError(f"The model is the class {candidate.__name__}, not an instance; call it first.")
    if isinstance(candidate, nn.Module):
        parameter = _first_parameter(candidate)
        if parameter is not None and parameter.device != x.device:
            raise InputError(f"The model is on {parameter.device} and the points on {x.device}; move one with .to().")
        if parameter is not None and parameter.is_floating_point() and parameter.dtype != x.dtype:
            raise InputError(f"The model is {parameter.dtype} and the points are {x.dtype}; convert one with .to().")
    return cast(Model, candidate)


def _first_parameter(module: nn.Module) -> Tensor | None:
    """Return the first of `module.parameters()`, faster than by that iterator: this runs at every call."""
    ahead: list[nn.Module | None] = [module]
    while ahead:
        part = ahead.pop()
        if part is None:
            continue
        for parameter in part._parameters.values():
            if parameter is not None:
                return parameter
        ahead.extend(reversed(part._modules.values()))
    return None


def forward(model: Model, x: Any, kinds: tuple[type, ...] = (Tensor,)) -> Any:
    """Return the model's output at `x` after checking that it is (B, m) and that the input is unchanged.

    All engines call the model through this function, so they refuse the same models with the same words. An engine
    that passes other objects than tensors through the network lists their types in `kinds`.
    """
    version = None if torch.compiler.is_compiling() or x.is_inference() else x._version
    u = _called(model, x)
    if version is not None:
        unchanged(x, version)
    if not isinstance(u, kinds):
        raise ModelError(
            f"The model returned {_described(u)}; it must return one tensor of shape (B, m): wrap it, "
            "for example in lambda x: model(x)[0]."
        )
    if u.ndim != 2 or u.shape[0] != x.shape[0] or u.shape[1] == 0:
        hint = "; add unsqueeze(1) for a single output" if u.ndim == 1 else ""
        raise ModelError(
            f"The model returned shape {tuple(u.shape)} for {x.shape[0]} points; it must return (B, m){hint}."
        )
    if u.dtype.is_complex:  # real and imaginary parts side by side
        return torch.view_as_real(u).flatten(1)
    if not u.is_floating_point():
        raise ModelError(f"The model returned {u.dtype}; derivatives need a floating-point output.")
    return u


def unchanged(x: Any, version: int) -> None:
    """Raise ModelError if the model wrote into `x` since `version` was read."""
    if x._version != version:
        raise ModelError("The model changed its input in place; write x = x * 2 rather than x *= 2 in its forward.")


def _called(model: Model, x: Any) -> Any:
    if torch.compiler.is_compiling():
        return model(x)
    try:
        return model(x)
    except (DudxError, torch.cuda.OutOfMemoryError):
        raise
    except AssertionError as error:
        if not from_control_flow(error):  # a network's own
            raise
        raise UnsupportedError(
            "A network with torch.cond, or other control flow of torch, cannot be watched by this engine: choose "
            "between values with torch.where, or use dudx.AD()."
        ) from error
    except RuntimeError as error:
        raise ModelError(
            f"The model failed on a batch of shape {tuple(x.shape)}, {x.dtype}: {first_line(error)}."
        ) from error


def _described(value: object) -> str:
    return f"a {type(value).__name__} of {len(value)}" if isinstance(value, tuple | list) else type(value).__name__
