"""The networks. The folder is the registry: a file of it that holds a `NETWORK` is one, by the file's name.

A `NETWORK` is called with the numbers of inputs and outputs, `width`, `bounds` (the corners of the domain where inputs
are to be rescaled, else None) and, if it takes them, `depth`, and `features` and `hard` of the problem.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from typing import Any

from torch import nn

from dudx.lab.names import held_in
from dudx.lab.run.networks.attention import AttentionMLP
from dudx.lab.run.networks.batchnorm import BatchNormMLP
from dudx.lab.run.networks.mlp import MLP
from dudx.lab.run.networks.rescaling import Rescale

__all__ = ["MLP", "AttentionMLP", "BatchNormMLP", "Rescale", "features_taken", "networks", "sizes_taken"]


@cache
def networks() -> dict[str, Callable[..., nn.Module]]:
    """The networks by the word for each in settings and on the command line."""
    return held_in(__name__, "NETWORK")


def sizes_taken(maker: Callable[..., nn.Module], width: int, depth: int) -> dict[str, Any]:
    """Width and depth as a network takes them; not every one has a depth to choose."""
    return {"width": width} | ({"depth": depth} if "depth" in _arguments(maker) else {})


def features_taken(
    maker: Callable[..., nn.Module], features: Callable[[], Any] | None, hard: Callable[[], Any] | None
) -> dict[str, Any]:
    """What a problem knows of its solution, made for a network that takes it."""
    taken = _arguments(maker)
    known = {"features": features, "hard": hard}
    return {name: make() for name, make in known.items() if make is not None and name in taken}


def _arguments(maker: Callable[..., nn.Module]) -> set[str]:
    try:
        return set(inspect.signature(maker).parameters)
    except ValueError:  # something compiled, which does not tell
        return set()
