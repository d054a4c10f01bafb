"""The engines by name, for settings and the command line."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch

from dudx import AD, EFD, FD, SFD, Engine, PerSampleAD, Taylor
from dudx.engines.difference.engine import Difference
from dudx.lab.names import look_up

EngineMaker = Callable[[int, torch.Generator], Engine]

#: Name to (what it is, how it is made from an accuracy and a generator). A new engine is a line here.
ENGINES: dict[str, tuple[str, EngineMaker]] = {
    "ad": ("automatic differentiation, batched; exact", lambda accuracy, generator: AD()),
    "taylor": ("Taylor propagation, forward; exact", lambda accuracy, generator: Taylor()),
    "fd": ("finite differences, one calibrated step", lambda accuracy, generator: FD(accuracy=accuracy)),
    "efd": ("finite differences, a step per order", lambda accuracy, generator: EFD(accuracy=accuracy)),
    "sfd": (
        "finite differences, a random step per point and call",
        lambda accuracy, generator: SFD(accuracy=accuracy, generator=generator),
    ),
    "per-sample": (
        "automatic differentiation, sample by sample; exact and slow",
        lambda accuracy, generator: PerSampleAD(),
    ),
}


def make_engine(name: str, accuracy: int, generator: torch.Generator, ignoring: bool = False) -> Engine:
    """The engine of that name, without a step yet; one that ignores influence between samples, if it is told to."""
    _, maker = look_up(name, ENGINES, "engine")
    engine: Any = maker(accuracy, generator)
    return dataclasses.replace(engine, coupled="ignore") if ignoring and engine.coupled == "refuse" else engine


def steps_of(engine: Engine) -> Any:
    """What a checkpoint keeps of an engine."""
    return getattr(engine, "step", None) or getattr(engine, "steps", None)


def with_steps(engine: Engine, steps: Any) -> Engine:
    """The engine as `steps_of` found it."""
    if steps is None or not isinstance(engine, Difference):
        return engine
    return dataclasses.replace(engine, **{"step" if hasattr(engine, "step") else "steps": steps})


def step_text(engine: Engine) -> str:
    """The steps for a person; empty for engines that have none."""
    steps = steps_of(engine)
    if steps is None:
        return ""
    return f"{steps:.2e}" if isinstance(steps, float) else " ".join(f"{step:.2e}" for step in steps.values())
