"""The two phases of a training: an optimizer with its schedule, then perhaps L-BFGS."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, LRScheduler

from dudx.errors import InputError
from dudx.lab.names import look_up, said
from dudx.lab.run.optimizers import optimizers
from dudx.lab.run.settings import Settings


def first_phase(settings: Settings, parameters: Iterable[nn.Parameter]) -> tuple[torch.optim.Optimizer, LRScheduler]:
    """The optimizer of the main phase with its schedule."""
    name = settings.optimizer
    maker = look_up(name, optimizers(), "optimizer")
    try:
        optimizer = maker(list(parameters), lr=settings.learning_rate)
    except (Exception, SystemExit) as error:  # of the user's code
        raise InputError(f"The optimizer {name!r} cannot be made from parameters and lr: {said(error)}.") from error
    if name not in optimizers():
        _refuse_unusable(name, optimizer)
    if settings.schedule == "cosine":
        return optimizer, CosineAnnealingLR(optimizer, T_max=settings.epochs)
    return optimizer, LambdaLR(optimizer, lambda epoch: 1.0)


def _refuse_unusable(name: str, optimizer: Any) -> None:
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise InputError(f"The optimizer {name!r} is a {type(optimizer).__name__}, which is not torch.optim.Optimizer.")
    closure = inspect.signature(optimizer.step).parameters.get("closure")
    if closure is not None and closure.default is inspect.Parameter.empty:
        raise InputError(
            f"The optimizer {name!r} evaluates the loss itself, by a closure; L-BFGS has a phase of its own, "
            "--lbfgs-epochs."
        )


def second_phase(parameters: Iterable[nn.Parameter]) -> torch.optim.LBFGS:
    """L-BFGS with a line search; each epoch it may look at its batch up to 25 times."""
    return torch.optim.LBFGS(list(parameters), max_iter=20, max_eval=25, history_size=50, line_search_fn="strong_wolfe")
