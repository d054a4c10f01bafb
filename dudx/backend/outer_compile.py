"""Behaviour inside a `torch.compile` of the user."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import torch

Function = TypeVar("Function", bound=Callable[..., Any])


def uncompiled(function: Function) -> Function:
    """Decorate a function so that a `torch.compile` of the user does not trace it.

    While the compiler traces, tensors have no values, and the check for coupled samples would be skipped. Graphs that
    dudx compiles with `compile=True` are created further inside and are not affected.
    """

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            aside = torch.compiler.disable(function, reason="dudx reads values, and compiles by itself")
            return aside(*args, **kwargs)
        return function(*args, **kwargs)

    return called  # type: ignore[return-value]
