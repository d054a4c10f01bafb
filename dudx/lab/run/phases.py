"""The two phases of a training: an optimizer with its schedule, then perhaps L-BFGS."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, LRScheduler

from dudx.errors import InputError
from dudx.lab.names import look_up
from dudx.lab.run.optimizers import optimizers
from dudx.lab.run.settings import Settings


def first_phase(settings: Settings, parameters: Iterable[nn.Parameter]) -> tuple[torch.optim.Optimizer, LRScheduler]:
    """The optimizer of the main phase with its schedule."""
    name = settings.optimizer
    maker = look_up(name, optimizers(), "optimizer")
    try:
        optimizer = maker(list(parameters), lr=settings.learning_rate)
    except TypeError as error:
        raise InputError(f"The optimizer {name!r} cannot be made from parameters and lr: {error}.") from error
    if settings.schedule == "cosine":
        return optimizer, CosineAnnealingLR(optimizer, T_max=settings.epochs)
    return optimizer, LambdaLR(optimizer, lambda epoch: 1.0)


def second_phase(parameters: Iterable[nn.Parameter]) -> torch.optim.LBFGS:
    """L-BFGS with a line search; each epoch it may look at its batch up to 25 times."""
    return torch.optim.LBFGS(list(parameters), max_iter=20, max_eval=25, history_size=50, line_search_fn="strong_wolfe")
