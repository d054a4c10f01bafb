"""The interface of engines: one abstract method, and classes for what some of them can do besides.

No method that has a body is overridden. An engine that can do more than `derivatives` derives from the class that says
so, and the functions at the end of this module answer for those that do not.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Literal, Self, TypeVar, final

import torch
from torch import Tensor

from dudx.backend import tensor_checks
from dudx.engines.request import Request, request_of
from dudx.errors import InputError
from dudx.network.model_checks import Model
from dudx.operators import Operator

AnyEngine = TypeVar("AnyEngine", bound="Engine")
#: What to do with a network whose samples influence each other: raise an error, or ignore it.
Coupled = Literal["refuse", "ignore"]
#: Where a difference takes its values: on both sides of a point, or on one.
Side = Literal["central", "forward", "backward"]


def in_common_format(results: Sequence[Tensor], points: torch.dtype, output: torch.dtype) -> list[Tensor]:
    """Results in the finer format of the points' and the output's, so that all engines return the same one."""
    common = torch.promote_types(points, output)
    return [result.to(common) for result in results]


@dataclass(frozen=True)
class RowsPerPoint:
    """Rows per point: those of one pass through the network, and those kept for the backward pass."""

    at_once: int
    kept: int


@dataclass(frozen=True)
class Prepared:
    """A request planned once: what is left is arithmetic on tensors, which `torch.compile` can follow.

    Two requests with equal keys have equal plans; `tensors` (steps, vectors) are what may differ between calls.
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

    A new engine is one class with one method, `derivatives`. It gets checked points and a request, and returns one
    (B, m) tensor for each of `request.operators`, differentiable with respect to the model's parameters. The terms of
    an operator are `Partial`, with `axes`, and `Directional`, along the vectors `request.vectors[term.slot]`. It calls
    the model through `model_checks.forward`.

    Example:
        >>> class Doubled(dudx.Engine):
        ...     def derivatives(self, model, x, request):
        ...         return [2 * value for value in dudx.AD().derivatives(model, x, request)]
        >>> twice = dudx.evaluate(torch.sin, torch.zeros(3, 1), dudx.D(0), Doubled())
        >>> twice.flatten().tolist()
        [2.0, 2.0, 2.0]
    """

    #: The word for it in settings and on the command line; an engine without one is not listed.
    name: ClassVar[str] = ""
    #: True where it differentiates a network by its code, so that what the code hides (numpy, detach, a backward pass
    #: of its own) is hidden from it too; its first results of a network are then checked.
    by_code: ClassVar[bool] = False
    #: True where it is made of the network's values at shifted points, whose shifts may be lost by rounding.
    by_shifts: ClassVar[bool] = False

    #: True where its results are off by more than rounding, so that an exact engine of the same speed is preferred.
    approximate: bool = False
    #: What to do with a network whose samples influence each other: "refuse" it, "ignore" the fact and compute
    #: something else than the derivative, or None where the engine is right for such networks too.
    coupled: Coupled | None = "refuse"
    #: The searches that set its steps, by derivative order; none where it has no steps or they were given.
    calibrations: Mapping[int, Any] = MappingProxyType({})

    @abstractmethod
    def derivatives(self, model: Model, x: Tensor, request: Request) -> Sequence[Tensor]:
        """One (B, m) tensor per operator."""

    @final
    def rows(self, x: Tensor, operators: Operator | Sequence[Operator]) -> RowsPerPoint:
        """Rows that a point takes; `suggested_chunk` cuts the batch by it."""
        return rows_per_point(self, x, request_of(operators, x))

    @final
    def calibrated(self, model: Model, x: Tensor, operators: Operator | Sequence[Operator], **search: Any) -> Self:
        """The engine with its steps set for this model; exact engines have none and return themselves.

        Keywords go to `find_eps`: candidates, smallest, largest, reference.
        """
        return calibrated(self, model, x, request_of(operators, tensor_checks.points(x)), search)


class Planned(Engine):
    """An engine whose requests are planned apart from their execution."""

    @abstractmethod
    def prepared(self, x: Tensor, request: Request) -> Prepared | None:
        """The plan for a request; None where the engine cannot be compiled as it is set."""


class Counted(Engine):
    """An engine that knows how many rows it takes."""

    @abstractmethod
    def rows_for(self, x: Tensor, request: Request) -> RowsPerPoint:
        """Rows that a point takes for a request; no random numbers are drawn for it."""


class Stepped(Engine):
    """An engine with steps, or with an engine inside that may have some."""

    @abstractmethod
    def refuse_unset(self, request: Request) -> None:
        """Raise `StepNotSetError` if the request needs a step that is not set yet."""


class Adjustable(Engine):
    """An engine that is set for a model, and is so again from what a checkpoint keeps."""

    @abstractmethod
    def calibrated_for(self, model: Model, x: Tensor, request: Request, search: Mapping[str, Any]) -> Self:
        """The engine with its steps, or its choice, set for a model; `search` are keywords of `find_eps`."""

    @property
    @abstractmethod
    def state(self) -> dict[str, Any]:
        """Return plain values for a checkpoint; `with_state` restores the engine from them."""

    @abstractmethod
    def with_state(self, state: Mapping[str, Any]) -> Self:
        """The engine as it was when `state` was taken."""


def prepared(engine: Engine, x: Tensor, request: Request) -> Prepared | None:
    """The plan for a request apart from its execution; None where the engine cannot be compiled."""
    return engine.prepared(x, request) if isinstance(engine, Planned) else None


def rows_per_point(engine: Engine, x: Tensor, request: Request) -> RowsPerPoint:
    """Rows that a point takes for a request: by the engine, by its plan, or four where neither tells."""
    if isinstance(engine, Counted):
        return engine.rows_for(x, request)
    plan = prepared(engine, x, request)
    return RowsPerPoint(4, 4) if plan is None else RowsPerPoint(plan.rows, plan.rows)


def refuse_unset(engine: Engine, request: Request) -> None:
    """Raise `StepNotSetError` if the request needs a step that is not set yet."""
    if isinstance(engine, Stepped):
        engine.refuse_unset(request)


def calibrated(engine: AnyEngine, model: Model, x: Tensor, request: Request, search: Mapping[str, Any]) -> AnyEngine:
    """The engine with its steps set for a model; one without steps is returned as it is."""
    return engine.calibrated_for(model, x, request, search) if isinstance(engine, Adjustable) else engine


def state_of(engine: Engine) -> dict[str, Any]:
    """Return the state of an engine for a checkpoint; empty for an engine without settings found for a model."""
    return engine.state if isinstance(engine, Adjustable) else {}


def with_state(engine: AnyEngine, state: Mapping[str, Any]) -> AnyEngine:
    """The engine as it was when `state` was taken."""
    if isinstance(engine, Adjustable):
        return engine.with_state(state)
    if state:
        raise InputError(f"{type(engine).__name__} keeps no state, and was given that of another engine: {state!r}.")
    return engine
