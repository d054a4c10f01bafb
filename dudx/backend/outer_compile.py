"""A compiler that the user has put around a computation in which ours is a part."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import torch

Function = TypeVar("Function", bound=Callable[..., Any])


def uncompiled(function: Function) -> Function:
    """A function that runs inside of the user's own `torch.compile` as it does anywhere else.

    The compiler would follow it, and while it does there are no numbers to look at: the check for coupled samples
    would be left out. What `compile=True` makes a graph of is further inside, and is not concerned.
    """

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            aside = torch.compiler.disable(function, reason="dudx looks at numbers, and compiles by itself")
            return aside(*args, **kwargs)
        return function(*args, **kwargs)

    return called  # type: ignore[return-value]
