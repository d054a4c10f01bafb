"""Options for `torch.compile` that shorten the first compilation on a CPU."""

from __future__ import annotations

from typing import Any


def as_one_program() -> dict[str, Any]:
    """Put all loops of a graph into one C++ program.

    By default each loop is a program of its own, and most of a first compilation is spent on reading headers. Without
    this option compilation takes longer.
    """
    import torch._inductor.config as settings

    return {"cpp_wrapper": True} if hasattr(settings, "cpp_wrapper") else {}
