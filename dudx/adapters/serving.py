"""What every adapter does: serve an equation by a residual where that can be trusted, and say so where it cannot."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from dudx.errors import InputError, first_line


class AdapterWarning(UserWarning):
    """A script, or one equation of it, runs as it did before; the sentence says why."""


def runs_as_before(what: str, reason: BaseException | str) -> None:
    """Say in one sentence that, and why, nothing is accelerated."""
    why = reason if isinstance(reason, str) else first_line(reason)
    warnings.warn(f"{what} runs as before, without dudx: {why.rstrip('.')}.", AdapterWarning, stacklevel=3)


def with_parameters(names: Sequence[str], function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with parameters of these names, as `Residual` looks for them; it is called with keywords."""

    def named(**given: Any) -> Any:
        return function(**given)

    kind = inspect.Parameter.KEYWORD_ONLY
    named.__signature__ = inspect.Signature([inspect.Parameter(name, kind) for name in names])  # type: ignore
    return named


#: How far the same number may be off when it is computed in another way, by the number format.
_TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-3}


def must_agree(ours: Sequence[Tensor], theirs: Sequence[Tensor], what: str) -> None:
    """Raise `InputError` where what dudx computes is not what the script computes by itself."""
    if len(ours) != len(theirs):
        raise InputError(f"{what} are {len(theirs)}, and recorded there are {len(ours)}.")
    for one, other in zip(ours, theirs, strict=True):
        one, other = one.detach().as_subclass(Tensor), other.detach().as_subclass(Tensor)
        if one.shape != other.shape:
            raise InputError(f"{what} have shape {tuple(other.shape)}, and recorded {tuple(one.shape)}.")
        tolerance = _TOLERANCE.get(other.dtype, 1e-2)
        size = torch.maximum(one.abs().max(), other.abs().max())
        if not bool((one - other).abs().max() <= tolerance * size + torch.finfo(other.dtype).tiny):
            raise InputError(
                f"{what} differ from what was recorded, as they do where the equation branches on values, "
                "differentiates by torch.autograd.grad itself or looks at all points together"
            )
