"""SOAP."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn


def soap(parameters: Iterable[nn.Parameter], lr: float) -> torch.optim.Optimizer:
    """SOAP: Adam in the eigenbasis of Shampoo's preconditioner, in minutes where Adam takes far longer."""
    from pytorch_optimizer import SOAP  # which takes a second to import

    return SOAP(list(parameters), lr=lr)


OPTIMIZER = soap
