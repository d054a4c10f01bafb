"""Forward-mode differentiation without torch's warnings."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch.autograd import forward_ad


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


def close_leaked_level() -> None:
    """Leave the level of forward mode that a failed compilation left open, inside of which every `jvp` would fail.

    Torch's compiler runs the calls of a traced `jvp` one by one, and forgets the level if one of them fails.
    """
    if forward_ad._current_level >= 0:  # opened by a caller
        return
    try:
        level = torch._C._enter_dual_level()  # type: ignore[attr-defined]
    except RuntimeError:  # there is one already
        level = 0
    torch._C._exit_dual_level(level=level)  # type: ignore[attr-defined]
