"""The networks. The folder is the registry: a file of it that holds a `NETWORK` is one, by the file's name.

A `NETWORK` is called with the numbers of inputs and outputs, `width`, `bounds` (the corners of the domain where inputs
are to be rescaled, else None) and, if it takes them, `depth`, `spread`, and the problem's `features` and `hard` values.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from torch import nn

from dudx.errors import InputError
from dudx.lab.named_objects import held_in
from dudx.lab.problems import Problem
from dudx.lab.run.networks.attention import AttentionMLP
from dudx.lab.run.networks.batchnorm import BatchNormMLP
from dudx.lab.run.networks.featured import FeaturedMLP
from dudx.lab.run.networks.mlp import MLP
from dudx.lab.run.networks.rescaling import Rescale
from dudx.lab.run.networks.separable import Separable

__all__ = [
    "MLP",
    "AttentionMLP",
    "BatchNormMLP",
    "FeaturedMLP",
    "Rescale",
    "Separable",
    "knowledge_taken",
    "networks",
    "sizes_taken",
]


@cache
def networks() -> dict[str, Callable[..., nn.Module]]:
    """The networks by the word for each in settings and on the command line."""
    return held_in(__name__, "NETWORK")


def sizes_taken(
    maker: Callable[..., nn.Module], width: int, depth: int, spread: float = 0.0, initialisation: str = "xavier"
) -> dict[str, Any]:
    """Width, depth, spread and initialisation as a network takes them; not every one has the last three to choose."""
    offered = {"depth": depth, "spread": spread, "initialisation": initialisation}
    if initialisation != "xavier" and "initialisation" not in _taken(maker):
        raise InputError(
            f"initialisation = {initialisation!r} is for the network 'mlp'; the one chosen has an initialisation of "
            "its own, so leave it out."
        )
    return {"width": width} | {key: value for key, value in offered.items() if key in _taken(maker)}


def knowledge_taken(maker: Callable[..., nn.Module], problem: Problem) -> dict[str, nn.Module]:
    """Return the problem's `features` and `hard` values that a network accepts."""
    makers = {"features": problem.known_features, "hard": problem.hard}
    known = {name: make() for name, make in makers.items() if make is not None and name in _taken(maker)}
    return {name: value for name, value in known.items() if value is not None}


def _taken(maker: Callable[..., nn.Module]) -> Mapping[str, object]:
    try:
        return inspect.signature(maker).parameters
    except ValueError:  # something compiled, which does not tell
        return {}
