"""Checks at the border, made once: what came in, what was expected, what to do."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from dudx.errors import DudxError, InputError, ModelError, first_line
from dudx.private_torch import mapped, transforms_active

Model = Callable[[Tensor], Tensor]


def points(x: object) -> Tensor:
    """A finite floating-point tensor of shape (B, d)."""
    x = batch(x)
    finite(x, "points")
    return x


def batch(x: object) -> Tensor:
    """A floating-point tensor of shape (B, d), its numbers not looked at."""
    if not isinstance(x, Tensor):
        raise InputError(f"The points must be a torch tensor of shape (B, d); got {type(x).__name__}.")
    if x.ndim != 2:
        raise InputError(f"The points must have shape (B, d), one row a point; got shape {tuple(x.shape)}.")
    if not x.is_floating_point():
        raise InputError(f"The points must be floating-point to be differentiated; got {x.dtype}: use x.float().")
    if 0 in x.shape:
        raise InputError(f"The batch of points is empty (shape {tuple(x.shape)}); give at least one point.")
    return x


def finite(values: Tensor, name: str) -> None:
    """Numbers without NaN and infinities."""
    # The meta device has no values to look at, nor has vmap; inside torch.compile a look would break the graph.
    if values.is_meta or torch.compiler.is_compiling() or (transforms_active() and mapped()):
        return
    # A sum is finite only if all its terms are, and costs less than looking at each; an overflow is looked into.
    if not math.isfinite(float(values.detach().sum())) and not bool(torch.isfinite(values).all()):
        bad = int((~torch.isfinite(values)).any(dim=1).nonzero()[0])
        raise InputError(f"The {name} must be finite; row {bad} holds a NaN or an infinity.")


def readable(x: Tensor) -> bool:
    """Whether the numbers of points can be looked at: not where `torch.func.vmap` shares them out."""
    if x.is_meta or torch.compiler.is_compiling():
        return False
    if transforms_active() and mapped():
        try:
            x.detach().sum().item()
        except RuntimeError:
            return False
    return True


def moves(x: Tensor) -> bool:
    """Whether somebody asks what happens when points move, by a backward pass or a forward one."""
    return x.requires_grad or forward_ad.unpack_dual(x).tangent is not None


def model(candidate: object, x: Tensor) -> Model:
    """A callable whose parameters live where the points do."""
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
    """The first of `module.parameters()`, without the machinery of that: this is done in every call."""
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
    """The model's output at `x`, once it is sure to be a (B, m) tensor and the input untouched.

    Engines call the model through here only, so every engine refuses the same models with the same words. An engine
    that sends something else than a tensor through the network names it among the `kinds` it may get back.
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
    """Refuse a model that wrote into `x` since its version was looked up."""
    if x._version != version:
        raise ModelError("The model changed its input in place; write x = x * 2 rather than x *= 2 in its forward.")


def _called(model: Model, x: Any) -> Any:
    if torch.compiler.is_compiling():
        return model(x)
    try:
        return model(x)
    except (DudxError, torch.cuda.OutOfMemoryError):
        raise
    except RuntimeError as error:
        raise ModelError(
            f"The model failed on a batch of shape {tuple(x.shape)}, {x.dtype}: {first_line(error)}."
        ) from error


def _described(value: object) -> str:
    return f"a {type(value).__name__} of {len(value)}" if isinstance(value, tuple | list) else type(value).__name__


def step(value: object, name: str = "step") -> float:
    """A positive, finite number."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise InputError(f"The {name} must be a positive number; got {value!r}.")
    number = float(value)
    if not math.isfinite(number) or number <= 0:
        raise InputError(f"The {name} must be positive and finite; got {number!r}.")
    return number


def accuracy(value: object, side: str = "central") -> int:
    """An even order of accuracy, or any for a stencil that looks one way."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1 or (side == "central" and value % 2):
        what = (
            "central difference must be an even number, 2" if side == "central" else "one-sided one a whole number, 1"
        )
        raise InputError(f"The accuracy of a {what} or more; got {value!r}.")
    return value


def choice(value: object, allowed: Sequence[str], name: str) -> str:
    """One of a few words."""
    if value not in allowed:
        raise InputError(f"{name} must be one of {', '.join(map(repr, allowed))}; got {value!r}.")
    return str(value)
