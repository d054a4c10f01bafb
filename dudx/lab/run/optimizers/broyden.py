"""The self-scaled Broyden method."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

from dudx.optim import SelfScaledBroyden


def broyden(parameters: Iterable[nn.Parameter], lr: float) -> torch.optim.Optimizer:
    """Self-scaled Broyden: a quasi-Newton method with a whole matrix; an epoch is 20 steps, the rate is not used."""
    return SelfScaledBroyden(list(parameters), max_iter=20)


OPTIMIZER = broyden
