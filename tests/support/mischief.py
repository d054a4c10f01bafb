"""Burgers' equation with mischief: problems that do something to the process they are trained in.

Each deed happens once, or until it is forgiven by a file in the folder that MISCHIEF names.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import dudx
from dudx.lab.problems import Problem, problem

DRAWS = 14  # past the second checkpoint of the smoke profile, and not at a checkpoint; calibration draws, too


def killed() -> Problem:
    return _burgers(lambda: _once("killed", lambda: os.kill(os.getpid(), signal.SIGKILL)))


def crashing() -> Problem:
    def crash() -> None:
        if not _forgiven():
            raise ValueError("the sky fell\non our heads")

    return _burgers(crash)


def slow() -> Problem:
    """Leaves time to disturb a run."""
    return _burgers(lambda: None if _forgiven() else time.sleep(0.1), every=1)


def random_factor() -> Problem:
    """Asks the global generator for a factor of its equation."""
    found = problem("poisson")
    equation = dudx.Residual(lambda u: (1 + torch.rand(())) * u.laplacian(), inputs=found.inputs)
    return dataclasses.replace(found, residual=equation)


def _burgers(deed: Callable[[], None], every: int = DRAWS) -> Problem:
    draws = 0

    def sample(*arguments: Any) -> Any:
        nonlocal draws
        draws += 1
        if draws % every == 0:
            deed()
        return first.sample(*arguments)

    found = problem("burgers")
    first, *others = found.conditions
    return dataclasses.replace(found, conditions=[dataclasses.replace(first, sample=sample), *others])


def _once(name: str, deed: Callable[[], None]) -> None:
    mark = _folder() / name
    if not mark.exists():
        mark.touch()
        deed()


def _forgiven() -> bool:
    return (_folder() / "forgiven").exists()


def _folder() -> Path:
    return Path(os.environ["MISCHIEF"])
