"""The phases of a training: an optimizer by gradients, or by the terms of the loss, then perhaps L-BFGS."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
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
from dudx.optim.step_solvers import Reduce

#: The loss before a step and, by name, its unweighted parts.
Losses = tuple[float, Mapping[str, Tensor]]
#: Leaves the gradient of the loss in the parameters that an optimizer has.
Gradient = Callable[[torch.optim.Optimizer, list[Part]], Losses]


class DivergedError(Exception):
    """The loss is not finite."""


class Phase(Protocol):
    """Epochs with one optimizer."""

    #: What a checkpoint keeps, by name.
    stateful: dict[str, Stateful]

    def step(self, parts: list[Part]) -> Losses:
        """One step."""
        ...

    @property
    def learning_rate(self) -> float:
        """Of the next step."""
        ...

    @property
    def damping(self) -> float | None:
        """Of the next step, where it has one."""
        ...


def first_phase(
    settings: Settings, parameters: Iterable[nn.Parameter], reduce: Reduce | None = None
) -> tuple[Any, LRScheduler | None]:
    """The optimizer of the main phase with its schedule, which those by terms or with line searches have none of."""
    name = settings.optimizer
    maker = look_up(name, optimizers(), "optimizer")
    taken = _arguments(maker)
    if "damping" in taken and "lr" not in taken:
        offered = {key: getattr(settings, key) for key in ("damping", "memory", "acceleration")} | {"reduce": reduce}
        return maker(list(parameters), **{key: value for key, value in offered.items() if key in taken}), None
    try:
        optimizer = maker(list(parameters), lr=settings.learning_rate)
    except (Exception, SystemExit) as error:  # of the user's code
        raise InputError(f"The optimizer {name!r} cannot be made from parameters and lr: {said(error)}.") from error
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
            f"The optimizer {name!r} evaluates the loss itself, by a closure; there are lbfgs and broyden, and "
            "a phase of L-BFGS after another optimizer by --lbfgs-epochs."
        )


def searches(optimizer: Any) -> bool:
    """Whether an optimizer evaluates the loss itself, by a closure that it must be given."""
    closure = inspect.signature(optimizer.step).parameters.get("closure")
    return closure is not None and closure.default is inspect.Parameter.empty


def _arguments(maker: Callable[..., Any]) -> set[str]:
    try:
        return set(inspect.signature(maker).parameters)
    except ValueError:  # something compiled, which does not tell
        return set()


class Descent:
    """Steps along the gradient, by an optimizer and its schedule."""

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
    """Steps by an optimizer that looks at its batch as often as its line searches want to, such as L-BFGS."""

    learning_rate, damping = 1.0, None

    def __init__(self, optimizer: torch.optim.Optimizer, name: str, gradient: Gradient, generator: Generator):
        self.optimizer, self._gradient, self._generator = optimizer, gradient, generator
        self.stateful: dict[str, Stateful] = {name: optimizer}

    def step(self, parts: list[Part]) -> Losses:
        # The line search compares losses, so every look at the batch must use the same random steps.
        state = self._generator.get_state()
        seen: list[Losses] = []

        def closure() -> float:
            self._generator.set_state(state)
            seen.append(self._gradient(self.optimizer, parts))
            return seen[-1][0]

        self.optimizer.step(closure)  # type: ignore[arg-type]
        return seen[0]
