"""L-BFGS."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn


def lbfgs(parameters: Iterable[nn.Parameter], lr: float) -> torch.optim.Optimizer:
    """L-BFGS with a line search: an epoch is up to 20 steps and 25 looks at its batch; the rate is not used."""
    return torch.optim.LBFGS(list(parameters), max_iter=20, max_eval=25, history_size=50, line_search_fn="strong_wolfe")


OPTIMIZER = lbfgs
