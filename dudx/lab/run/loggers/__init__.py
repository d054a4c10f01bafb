"""Where the numbers of a run go beside its own files. The folder is the registry: a file with a `LOGGER` is one.

A `LOGGER` is called with the run's folder and its settings, as a dictionary, and returns something with two methods:
`log(epoch, values)`, called with each line of metrics.csv, and `close()`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from dudx.lab.named_objects import held_in, look_up


class Logger(Protocol):
    """A receiver of a run's numbers."""

    def log(self, epoch: int, values: Mapping[str, float]) -> None: ...

    def close(self) -> None: ...


@cache
def loggers() -> dict[str, Callable[[Path, Mapping[str, Any]], Logger]]:
    """The loggers by the word for each in settings and on the command line."""
    return held_in(__name__, "LOGGER")


def made(names: str, folder: Path, settings: Mapping[str, Any]) -> list[Logger]:
    """The loggers that are named, several separated by commas, or one of your own as package.module:Class."""
    chosen = [name.strip() for name in names.split(",") if name.strip()]
    return [look_up(name, loggers(), "logger")(folder, settings) for name in chosen]
