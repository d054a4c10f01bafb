"""The optimizers. The folder is the registry: a file of it that holds an `OPTIMIZER` is one, by the file's name.

An `OPTIMIZER` is called with the parameters and the learning rate, as `lr`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import torch

from dudx.lab.names import held_in


@cache
def optimizers() -> dict[str, Callable[..., torch.optim.Optimizer]]:
    """The optimizers by the word for each in settings and on the command line."""
    return held_in(__name__, "OPTIMIZER")
