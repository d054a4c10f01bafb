"""A checkpoint: what each part of a run says of itself, in one file, so that the run goes on as if never stopped."""

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
    """What a checkpoint asks of a part: torch's own convention."""

    def state_dict(self) -> Mapping[str, Any]: ...

    def load_state_dict(self, state: Any, /) -> Any: ...


class Checkpoint:
    """The file of a run's state, and the parts whose state it keeps."""

    def __init__(self, folder: Path, problem: str, parts: Mapping[str, Stateful]):
        self.path, self.problem, self.parts = folder / FILE, problem, parts

    def save(self) -> None:
        """Write down the state of every part."""
        states = {name: dict(part.state_dict()) for name, part in self.parts.items()}
        file_formats.write_checkpoint(self.path, {"problem": self.problem, **states})

    def load(self) -> None:
        """Give every part the state it had when it was written down."""
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
    """The generators of a run, and torch's own, which a user's code may ask."""

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
    """Raise a TypeError where a state holds something of another kind than the part it is for has there now."""
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
    """A state that a user's class gives, if it can be read again: a checkpoint is never unpickled into objects."""
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
    # By their exact types: numbers of numpy are numbers too, and are not read again.
    return None if value is None or type(value) in (bool, int, float, str) or isinstance(value, Tensor) else value
