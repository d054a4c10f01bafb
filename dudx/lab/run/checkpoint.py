"""Checkpoints: the state of all parts of a run in one file, from which it continues bit for bit."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Generator, Tensor

from dudx.errors import InputError, first_line
from dudx.lab import file_formats

FILE = "checkpoint.pt"


class Stateful(Protocol):
    """An object with a state, by torch's convention."""

    def state_dict(self) -> Mapping[str, Any]: ...

    def load_state_dict(self, state: Any, /) -> Any: ...


class Checkpoint:
    """The checkpoint file of a run, and the parts whose state it holds."""

    def __init__(self, folder: Path, problem: str, parts: Mapping[str, Stateful]):
        self.path, self.problem, self.parts = folder / FILE, problem, parts

    def save(self) -> None:
        """Write the state of every part."""
        states = {name: dict(part.state_dict()) for name, part in self.parts.items()}
        file_formats.write_checkpoint(self.path, {"problem": self.problem, **states})

    def load(self) -> None:
        """Restore the state of every part."""
        content = file_formats.read_checkpoint(self.path)
        if content.get("problem") != self.problem:
            raise InputError(
                f"The checkpoint is of the problem {content.get('problem')!r}, not {self.problem!r}; resume it in its "
                "own folder."
            )
        try:
            for name, part in self.parts.items():
                refuse_other_kind(name, part.state_dict(), content[name])
            for name, part in self.parts.items():
                part.load_state_dict(content[name])
        except KeyError as error:
            raise InputError(f"The checkpoint does not fit the settings: it holds no {error}.") from error
        except (RuntimeError, ValueError, TypeError, AttributeError, IndexError) as error:
            if isinstance(error, file_formats.DamagedError):  # of another file, which it names
                raise
            raise InputError(f"The checkpoint does not fit the settings: {first_line(error)}.") from error


class RandomNumbers:
    """State of a run's random generators, and of torch's own, which the user's code may use."""

    def __init__(self, device: torch.device, **generators: Generator):
        self.device, self.generators = device, generators

    def state_dict(self) -> dict[str, Any]:
        states = {name: generator.get_state() for name, generator in self.generators.items()}
        cuda = torch.cuda.get_rng_state(self.device) if self.device.type == "cuda" else None
        return {**states, "torch": torch.get_rng_state(), "cuda": cuda}

    def load_state_dict(self, state: Mapping[str, Any], /) -> None:
        for name, generator in self.generators.items():
            generator.set_state(state[name])
        torch.set_rng_state(state["torch"])
        if state["cuda"] is not None and self.device.type == "cuda":
            torch.cuda.set_rng_state(state["cuda"], self.device)


def refuse_other_kind(name: str, ours: Any, theirs: Any) -> None:
    """Raise `TypeError` if a stored state has values of other types than the part's present state."""
    if ours is None or theirs is None:
        return
    kinds = next((k for k in (Mapping, list | tuple, Tensor, bool, int, str) if isinstance(ours, k)), float | int)
    known = isinstance(ours, float | kinds)  # of a user's own kind there is nothing to say
    if known and (not isinstance(theirs, kinds) or isinstance(theirs, bool) > isinstance(ours, bool)):
        raise TypeError(f"{name} is a {type(theirs).__name__} where it should be a {type(ours).__name__}")
    if isinstance(ours, Mapping):
        for key in ours.keys() & theirs.keys():
            refuse_other_kind(f"{name}.{key}", ours[key], theirs[key])
    elif isinstance(ours, list | tuple) and len(ours) == len(theirs):
        for number, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            refuse_other_kind(f"{name}.{number}", a, b)
    elif isinstance(ours, float) and math.isfinite(ours) and not math.isfinite(theirs):
        raise TypeError(f"{name} is {theirs}")


def kept(state: Mapping[str, Any], whose: str) -> dict[str, Any]:
    """Return the state of a user's class; refuse values that a checkpoint cannot hold: it unpickles no objects."""
    if (stranger := _stranger(dict(state))) is not None:
        raise InputError(
            f"The state of {whose} holds a {type(stranger).__name__}; a checkpoint keeps tensors, numbers, texts, and "
            "lists and dictionaries of them."
        )
    return dict(state)


def _stranger(value: Any) -> Any:
    if type(value) in (dict, list, tuple):
        inside = [*value, *value.values()] if isinstance(value, dict) else value
        return next((found for item in inside if (found := _stranger(item)) is not None), None)
    # Exact types: numpy's numbers are subclasses of Python's, and cannot be read again.
    return None if value is None or type(value) in (bool, int, float, str) or isinstance(value, Tensor) else value
