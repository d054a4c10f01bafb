"""Forward-mode differentiation without torch's warnings."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import torch


@functools.lru_cache(maxsize=1)
def _prepare_forward_mode() -> None:
    """Use forward mode once with warnings off: torch warns about modules that it imports on first use."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.func.jvp(torch.sin, (torch.zeros(1),), (torch.ones(1),))


def jvp(function: Callable[..., Any], point: tuple[Any, ...], along: tuple[Any, ...]) -> tuple[Any, Any]:
    """Call `torch.func.jvp` without its warnings; return the value and the directional derivative."""
    if not torch.compiler.is_compiling():
        _prepare_forward_mode()
    return torch.func.jvp(function, point, along)[:2]
