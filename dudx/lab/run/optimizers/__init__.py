"""The optimizers. The folder is the registry: a file of it that holds an `OPTIMIZER` is one, by the file's name.

An `OPTIMIZER` is called with the parameters and the learning rate, as `lr`. One that takes steps from the terms of the
loss, as `dudx.optim.LevenbergMarquardt` does, takes `damping` instead and, if it has them, `memory` and
`acceleration`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from dudx.lab.named_objects import held_in


@cache
def optimizers() -> dict[str, Callable[..., Any]]:
    """The optimizers by the word for each in settings and on the command line."""
    return held_in(__name__, "OPTIMIZER")
