"""What an experiment is: the work it needs, the data that work leaves, and what a reader sees of the data."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dudx.lab.run.settings import Settings
from dudx.lab.sweep.sweep_run import Outcome, Run
from reproduction.experiments.claims import Claim
from reproduction.experiments.data import Data
from reproduction.experiments.profile import Profile
from reproduction.experiments.tables import Table

CsvRows = Sequence[Mapping[str, Any]]
NpzArrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Measurement:
    """A piece of work that is no training run: a function of plain arguments that returns a plain dictionary.

    It runs in a process of its own. Its result has a "status": "ok", or what kept it from being so.
    """

    name: str
    #: package.module:function
    function: str
    arguments: Mapping[str, Any]
    #: What must have gone well before: the measurement, and why it speaks against this one, if it does.
    after: Measurement | None = None
    hopeless: Callable[[Mapping[str, Any]], str | None] = lambda before: None

    @property
    def file(self) -> str:
        """Equal arguments share a file, and other ones have another."""
        return f"{self.name}-{_digest(self.arguments)}.json"


@dataclass(frozen=True)
class Found:
    """What the work of an experiment came to."""

    outcomes: Sequence[Outcome] = ()
    #: The folder of the runs' folders.
    runs: Path = Path()
    measured: Sequence[tuple[Measurement, Mapping[str, Any]]] = ()


def _nothing(profile: Profile) -> list[Any]:
    return []


@dataclass(frozen=True)
class Experiment:
    """A table or figure: everything that is known of it, and nothing that does it."""

    name: str
    title: str
    #: From what was found to data files: rows for a .csv, arrays for an .npz.
    collect: Callable[[Found], Mapping[str, CsvRows | NpzArrays]]
    runs: Callable[[Profile], Sequence[Run]] = _nothing
    measurements: Callable[[Profile], Sequence[Measurement]] = _nothing
    tables: Callable[[Data], list[Table]] | None = None
    figure: Callable[[Data, Path], None] | None = None
    #: What is published of a figure, for a reader who has it not at hand.
    note: str = ""
    claims: Callable[[Data], list[Claim]] = field(default=lambda data: [])
    #: Whether its runs may be known from an archive; else what they leave in their folders is needed.
    archived: bool = True
    #: Its place in the report; the paper's own come first.
    place: int = 100


def named(settings: Settings) -> Run:
    """A run whose name follows from its settings, so that experiments that need the same run share it."""
    words = [settings.problem, settings.engine]
    words += [settings.network] * (settings.network != "mlp") + [settings.coupled] * (settings.coupled != "isolate")
    # Without defaults, so that a setting which is new in a later version does not rename everything.
    return Run(
        "-".join([*words, f"seed{settings.seed}", _digest(settings.model_dump(exclude_defaults=True))]), settings
    )


def _digest(values: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:8]
