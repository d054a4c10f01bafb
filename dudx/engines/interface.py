"""The interface every engine has."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Self

import torch
from torch import Generator, Tensor

from dudx.errors import InputError, UnsupportedError
from dudx.network.model_checks import Model
from dudx.operators import Operator, fitting


def in_common_format(results: Sequence[Tensor], points: torch.dtype, output: torch.dtype) -> list[Tensor]:
    """Results in the finer format of the points' and the output's, so that all engines return the same one."""
    common = torch.promote_types(points, output)
    return [result.to(common) for result in results]


@dataclass(frozen=True)
class RowsPerPoint:
    """What an engine makes of one point: rows in a pass through the network, and rows kept for the backward pass."""

    at_once: int
    kept: int


@dataclass(frozen=True)
class Prepared:
    """A request planned once: what is left is arithmetic on tensors, which `torch.compile` can follow.

    Two requests with equal keys have equal plans; `tensors` (steps, directions) are what may differ between calls.
    """

    key: Hashable
    run: Callable[[Model, Tensor, Sequence[Tensor]], list[Tensor]]
    tensors: tuple[Tensor, ...] = ()
    #: How many rows pass through the network for each point.
    rows: int = 4

    def __call__(self, model: Model, x: Tensor) -> list[Tensor]:
        return self.run(model, x, self.tensors)


class Engine(ABC):
    """A way to compute derivatives. Immutable: what changes a setting returns another engine.

    A new engine is one class with one method, `derivatives`. It gets checked points, and operators whose terms are
    `Partial` (with `axes` only) and `Directional`, and returns one (B, m) tensor for each operator, differentiable
    with respect to the model's parameters. It calls the model through `model_checks.forward`.

    Example:
        >>> class Doubled(dudx.Engine):
        ...     def derivatives(self, model, x, operators):
        ...         return [2 * value for value in dudx.AD().derivatives(model, x, operators)]
        >>> twice = dudx.evaluate(torch.sin, torch.zeros(3, 1), dudx.D(0), Doubled())
        >>> twice.flatten().tolist()
        [2.0, 2.0, 2.0]
    """

    #: The word for it in settings and on the command line; an engine without one is not listed.
    name: ClassVar[str] = ""
    #: What it is called in tables; None takes the name.
    label: ClassVar[str | None] = None
    #: One line that says what it does.
    summary: ClassVar[str] = ""
    #: Whether `dudx.recommend` times it.
    recommended: ClassVar[bool] = False
    #: Whether its results are off by more than rounding, so that an exact engine of the same speed is preferred.
    approximate: ClassVar[bool] = False
    #: Whether it differentiates a network by its code, so that what the code hides (numpy, detach, a backward pass of
    #: its own) is hidden from it too; its first results of a network are then looked at.
    by_code: ClassVar[bool] = False
    #: Its place in tables and lists; equal ones stand in the order of their names.
    rank: ClassVar[int] = 100
    #: Whether a training of thousands of steps gains by compiling it; `compile="auto"` asks.
    gains_by_compilation: ClassVar[bool] = False

    #: What to do with a network whose samples influence each other: "refuse" it, "ignore" the fact and compute
    #: something else than the derivative, or None where the engine is right for such networks too.
    coupled: str | None = "refuse"
    #: The searches that set its steps, by derivative order; none where it has no steps or they were given.
    calibrations: Mapping[int, Any] = MappingProxyType({})

    @abstractmethod
    def derivatives(self, model: Model, x: Tensor, operators: Sequence[Operator]) -> Sequence[Tensor]:
        """One (B, m) tensor per operator."""

    def prepared(self, x: Tensor, operators: Sequence[Operator]) -> Prepared | None:
        """The plan for a request apart from its execution; None where the engine cannot be compiled."""
        return None

    def rows(self, x: Tensor, operators: Sequence[Operator]) -> RowsPerPoint:
        """What a point costs in a pass through the network; `suggested_chunk` cuts the batch by it."""
        prepared = self.prepared(x, fitting(operators, x))
        return RowsPerPoint(4, 4) if prepared is None else RowsPerPoint(prepared.rows, prepared.rows)

    def looking(self, side: str) -> Engine:
        """The same engine with first derivatives that look "backward" or "forward"; an exact one returns itself."""
        if self.approximate:
            raise UnsupportedError(
                f"{type(self).__name__} cannot look one way, so that it has no upwind derivative: use the plain one, "
                "u.x, or dudx.CAN(), dudx.FD() or an exact engine."
            )
        return self

    # -- for training --------------------------------------------------------------------------------------------

    @classmethod
    def for_training(cls, accuracy: int, generator: Generator, coupled: str) -> Self:
        """The engine as a training run makes it from its settings; one without such settings ignores them."""
        return cls()

    def calibrated(self, model: Model, x: Tensor, operators: Sequence[Operator], **search: Any) -> Self:
        """The same engine with its steps set for this model; exact engines have none and return themselves."""
        return self

    @property
    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps: plain values of which `with_state` makes the engine as it is now."""
        return {}

    def with_state(self, state: Mapping[str, Any]) -> Self:
        """The same engine as it was when `state` was taken."""
        if state:
            raise InputError(f"{type(self).__name__} keeps no state, and was given that of another engine: {state!r}.")
        return self

    @property
    def shown(self) -> str:
        """What a progress bar shows of its state; empty where there is nothing."""
        return ""
