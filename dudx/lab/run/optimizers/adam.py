"""Adam."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn


def adam(parameters: Iterable[nn.Parameter], lr: float) -> torch.optim.Optimizer:
    """Adam, the usual choice and the one of the published experiments."""
    return torch.optim.Adam(parameters, lr=lr)


OPTIMIZER = adam
