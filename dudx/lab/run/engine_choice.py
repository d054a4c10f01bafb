"""The engine of a training: one of `dudx.engines`, or a class of the user's own."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

import torch

from dudx.engines.interface import Coupled, Engine
from dudx.errors import InputError
from dudx.lab.named_objects import look_up
from dudx.lab.run.engine_table import engines_in_order

#: Engines with which a training of thousands of steps gains by compilation, for `compile="auto"`.
_GAIN_BY_COMPILATION = ("taylor",)

#: Engines that cannot ignore that samples influence each other, and why.
_CANNOT_IGNORE = {
    "stde": "STDE computes by Taylor, which refuses coupled networks; they are ignored by AD and FD.",
}


def engine_kind(name: str) -> type[Engine]:
    """The class of an engine, by its name or as `package.module:Class`."""
    found = look_up(name, engines_in_order(), "engine")
    if not (isinstance(found, type) and issubclass(found, Engine)):
        raise InputError(f"The engine {name!r} must be a class derived from dudx.Engine; it is {found!r}.")
    return found


def gains_by_compilation(name: str) -> bool:
    """True if a training of thousands of steps with this engine gains by compilation."""
    return name in _GAIN_BY_COMPILATION


def make_engine(name: str, accuracy: int, generator: torch.Generator, ignoring: bool = False) -> Engine:
    """Make the engine of a training, without a step yet.

    An engine that has the fields `accuracy`, `generator` or `coupled` gets these settings of the training.

    Args:
        name: its name, or `package.module:Class`.
        accuracy: the order of convergence of differences.
        generator: the random numbers of the engine, which a checkpoint keeps.
        ignoring: ignore that samples influence each other.
    """
    kind = engine_kind(name)
    coupled: Coupled = "ignore" if ignoring else "refuse"
    if ignoring and name in _CANNOT_IGNORE:
        raise InputError(_CANNOT_IGNORE[name])
    settings: dict[str, Any] = {"accuracy": accuracy, "generator": generator, "coupled": coupled}
    taken = {field.name for field in fields(kind) if field.init} if is_dataclass(kind) else set()
    try:
        return kind(**{key: value for key, value in settings.items() if key in taken})
    except TypeError as error:
        raise InputError(
            f"The engine {name!r} cannot be made without arguments ({error}); give its fields default values."
        ) from error
