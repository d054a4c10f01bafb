"""Phases of training: a first-order, line-search or least-squares optimizer, optionally followed by L-BFGS."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Generator, Tensor, nn
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, LRScheduler

from dudx.errors import InputError
from dudx.lab.named_objects import look_up, said
from dudx.lab.run.checkpoint import Stateful
from dudx.lab.run.objective import Part
from dudx.lab.run.optimizers import optimizers
from dudx.lab.run.settings import Settings

#: The loss before a step and, by name, its unweighted parts.
Losses = tuple[float, Mapping[str, Tensor]]
#: Computes the gradient of the loss into the parameters of an optimizer.
Gradient = Callable[[torch.optim.Optimizer, list[Part]], Losses]


class DivergedError(Exception):
    """The loss is not finite."""


@dataclass(frozen=True)
class StepReport:
    """Numbers of one training step: the loss before it with its unweighted parts, and how the step was made."""

    loss: float
    by_name: Mapping[str, Tensor]
    learning_rate: float
    #: The engine's steps, as text.
    step: str = ""
    #: The damping after the step, for optimizers that have one.
    damping: float | None = None


class Phase(Protocol):
    """Epochs with one optimizer."""

    #: Objects whose state a checkpoint keeps, by name.
    stateful: dict[str, Stateful]

    def step(self, parts: list[Part]) -> Losses:
        """Do one step and return the loss before it."""
        ...

    @property
    def learning_rate(self) -> float:
        """The learning rate of the next step."""
        ...

    @property
    def damping(self) -> float | None:
        """The damping of the next step; None for optimizers without one."""
        ...


def first_phase(settings: Settings, parameters: Iterable[nn.Parameter]) -> tuple[Any, LRScheduler | None]:
    """Construct the main optimizer and its schedule; line-search and least-squares optimizers have no schedule."""
    name = settings.optimizer
    maker = look_up(name, optimizers(), "optimizer")
    taken = _arguments(maker)
    if "damping" in taken and "lr" not in taken:
        offered = {key: getattr(settings, key) for key in ("damping", "memory", "acceleration")}
        return maker(list(parameters), **{key: value for key, value in offered.items() if key in taken}), None
    try:
        optimizer = maker(list(parameters), lr=settings.learning_rate)
    except (Exception, SystemExit) as error:  # raised by the user's code
        raise InputError(
            f"The optimizer {name!r} cannot be constructed from (parameters, lr): {said(error)}."
        ) from error
    if name not in optimizers():
        _refuse_unusable(name, optimizer)
    if searches(optimizer):
        return optimizer, None
    if settings.schedule == "cosine":
        return optimizer, CosineAnnealingLR(optimizer, T_max=settings.epochs)
    return optimizer, LambdaLR(optimizer, lambda epoch: 1.0)


def _refuse_unusable(name: str, optimizer: Any) -> None:
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise InputError(f"The optimizer {name!r} is a {type(optimizer).__name__}, which is not torch.optim.Optimizer.")
    if searches(optimizer):
        raise InputError(
            f"The optimizer {name!r} needs a closure. Use lbfgs or broyden, or add a second phase of L-BFGS with "
            "lbfgs_epochs (--lbfgs-epochs)."
        )


def searches(optimizer: Any) -> bool:
    """Return True if `optimizer.step` requires a closure that evaluates the loss."""
    closure = inspect.signature(optimizer.step).parameters.get("closure")
    return closure is not None and closure.default is inspect.Parameter.empty


def _arguments(maker: Callable[..., Any]) -> set[str]:
    try:
        return set(inspect.signature(maker).parameters)
    except ValueError:  # compiled code has no signature
        return set()


class Descent:
    """Steps by a first-order optimizer and its schedule."""

    damping = None

    def __init__(self, optimizer: torch.optim.Optimizer, schedule: LRScheduler, gradient: Gradient):
        self.optimizer, self.schedule, self._gradient = optimizer, schedule, gradient
        self.stateful: dict[str, Stateful] = {"optimizer": optimizer, "schedule": schedule}

    @property
    def learning_rate(self) -> float:
        return self.optimizer.param_groups[0]["lr"]

    def step(self, parts: list[Part]) -> Losses:
        losses = self._gradient(self.optimizer, parts)
        self.optimizer.step()
        self.schedule.step()
        return losses


class LineSearch:
    """Steps by an optimizer with a line search, such as L-BFGS."""

    learning_rate, damping = 1.0, None

    def __init__(self, optimizer: torch.optim.Optimizer, name: str, gradient: Gradient, generator: Generator):
        self.optimizer, self._gradient, self._generator = optimizer, gradient, generator
        self.stateful: dict[str, Stateful] = {name: optimizer}

    def step(self, parts: list[Part]) -> Losses:
        # The line search compares losses, so every evaluation must use the same random step sizes.
        state = self._generator.get_state()
        losses: list[Losses] = []

        def closure() -> float:
            self._generator.set_state(state)
            losses.append(self._gradient(self.optimizer, parts))
            return losses[-1][0]

        self.optimizer.step(closure)  # type: ignore[arg-type]
        return losses[0]
