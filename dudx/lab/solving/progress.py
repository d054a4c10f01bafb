"""The state of a solution in training, as callbacks of `solve` see it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torch import Tensor, nn

from dudx.errors import InputError


@dataclass(frozen=True)
class Progress:
    """State of `solve` after a step.

    Attributes:
        step: the number of steps so far.
        loss: the loss before the step.
        losses: its unweighted terms by name, as tensors.
        cpu_seconds: CPU seconds so far, estimates included.
        estimate: the latest estimate of the relative error; None before the first one.
        unknowns: unknown constants by name.
        window: the window of time in training; None for the whole domain.
        network: the network in training; it must not be changed.
    """

    step: int
    loss: float
    losses: Mapping[str, Tensor]
    cpu_seconds: float
    estimate: float | None
    unknowns: Mapping[str, float]
    window: tuple[float, float] | None
    network: nn.Module


#: A function that is called during `solve`; training ends if it returns True.
Callback = Callable[[Progress], object]


@dataclass(frozen=True)
class Callbacks:
    """Functions that `solve` calls: after each step, after each estimate, and with sentences for the user."""

    report: Callable[[str], None]
    on_step: Callback | None = None
    on_estimate: Callback | None = None

    def __post_init__(self) -> None:
        for name, function in (("on_step", self.on_step), ("on_estimate", self.on_estimate)):
            if function is not None and not callable(function):
                raise InputError(f"{name} is a function of the progress; got {type(function).__name__}.")

    def stop_after(self, estimated: bool, now: Progress) -> bool:
        """Call what is due after a step; return True if one of the functions asks for the end."""
        due = [one for one in (self.on_step, self.on_estimate if estimated else None) if one is not None]
        return True in [one(now) for one in due]
