"""Checks that a script computes the same with dudx, and the warning where it runs without."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from dudx.errors import InputError, first_line


class AdapterWarning(UserWarning):
    """A script, or one equation of it, runs without dudx; the message says why."""


def warn_unaccelerated(what: str, reason: BaseException | str) -> None:
    """Warn in one sentence that nothing is accelerated, and why."""
    why = reason if isinstance(reason, str) else first_line(reason)
    warnings.warn(f"{what} runs as before, without dudx: {why.rstrip('.')}.", AdapterWarning, stacklevel=3)


def with_named_parameters(names: Sequence[str], function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a function that takes keywords a signature with these names, from which `Residual` reads them."""

    def named(**given: Any) -> Any:
        return function(**given)

    kind = inspect.Parameter.KEYWORD_ONLY
    named.__signature__ = inspect.Signature([inspect.Parameter(name, kind) for name in names])  # type: ignore
    return named


#: Relative tolerance between two ways to compute the same number, by its format.
_TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-3}


def check_agreement(ours: Sequence[Tensor], theirs: Sequence[Tensor], what: str) -> None:
    """Raise `InputError` where dudx and the script compute different values."""
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
