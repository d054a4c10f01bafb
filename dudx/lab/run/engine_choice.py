"""The engine of a run: one of `dudx.engines`, or a class of the user's own."""

from __future__ import annotations

import sys

import torch

from dudx.engines import engines
from dudx.engines.interface import Engine
from dudx.errors import InputError
from dudx.lab.lookup import look_up


def engine_kind(name: str) -> type[Engine]:
    """The class of an engine, by the word for it or as `package.module:Class`."""
    found = look_up(name, engines(), "engine")
    if not (isinstance(found, type) and issubclass(found, Engine)):
        raise InputError(f"The engine {name!r} must be a class derived from dudx.Engine; it is {found!r}.")
    return found


def engine_label(name: str) -> str:
    """What an engine is called in tables; nothing is imported for it, so that a table can be made of foreign data."""
    if name in engines():
        kind = engines()[name]
    else:
        module, _, attribute = name.partition(":")
        kind = getattr(sys.modules.get(module), attribute, None)
    if not (isinstance(kind, type) and issubclass(kind, Engine)):
        return name.rpartition(":")[2] or name
    return kind.label or kind.name or kind.__name__


def make_engine(name: str, accuracy: int, generator: torch.Generator, ignoring: bool = False) -> Engine:
    """The engine of that name, without a step yet; one that ignores influence between samples, if it is told to."""
    kind = engine_kind(name)
    try:
        return kind.for_training(accuracy, generator, "ignore" if ignoring else "refuse")
    except TypeError as error:
        raise InputError(
            f"The engine {name!r} cannot be made without arguments ({error}); give it a classmethod for_training."
        ) from error
