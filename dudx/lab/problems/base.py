"""What a problem is: an equation in a domain, the conditions that select its solution, and a reference."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
import torch
from torch import Generator, Tensor, nn

from dudx.lab.features import Features, Hard
from dudx.lab.problems.geometry import Domain
from dudx.residual import Residual

Points = tuple[Tensor, Mapping[str, Tensor]]


class Sampler(Protocol):
    """Draws points of a condition, and the data its residual takes with them."""

    def __call__(self, n: int, generator: Generator, device: torch.device, dtype: torch.dtype) -> Points: ...


class Solution(Protocol):
    """A solution to compare with: values at its own points, and at any others."""

    @property
    def points(self) -> np.ndarray: ...

    @property
    def values(self) -> np.ndarray: ...

    def __call__(self, points: np.ndarray) -> np.ndarray: ...


@dataclass(frozen=True)
class Condition:
    """An equation that holds on a part of the boundary, at the initial time, or at measured points."""

    name: str
    kind: Literal["initial", "boundary", "data"]
    residual: Residual
    sample: Sampler


@dataclass(frozen=True)
class Problem:
    """Everything that defines a problem; how it is solved is up to the settings of a run."""

    name: str
    title: str
    inputs: tuple[str, ...]
    domain: Domain
    residual: Residual
    conditions: Sequence[Condition]
    #: The exact or computed solution; a function because loading it may take a moment.
    solution: Callable[[], Solution] | None = None
    #: What it is called in tables, where the title is too long.
    label: str = ""
    outputs: int = 1
    #: Inputs are rescaled to [-1, 1] where their ranges differ much.
    rescaled: bool = False
    #: What is known of the solution, for networks that use it: columns to see, and values that hold by construction.
    features: Callable[[], Features] | None = None
    hard: Callable[[], Hard] | None = None
    #: Unknown constants of an inverse problem, trained together with the network.
    unknowns: Mapping[str, nn.Parameter] | None = None
    #: Settings of a run that suit it: they override a profile's general ones, and its table for the problem them.
    defaults: Mapping[str, Any] = field(default_factory=dict)
