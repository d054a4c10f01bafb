"""Declaration of an experiment: the work it needs, and the tables, figure and claims made from its results."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dudx.lab.run.settings import Settings
from dudx.lab.sweep.sweep_run import Run
from reproduction.analysis.claims import Claim
from reproduction.analysis.tables import Table
from reproduction.profile import Profile

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Measurement:
    """Work that is not a training run: a function of plain arguments that returns a plain dictionary.

    It is executed in a process of its own. Its result has a "status": "ok", or the kind of failure.
    """

    name: str
    #: package.module:function
    function: str
    arguments: Mapping[str, Any]
    #: A measurement to do first, and a function of its result that returns a reason to skip this one, or None.
    after: Measurement | None = None
    skip_reason: Callable[[Mapping[str, Any]], str | None] = lambda before: None

    @property
    def key(self) -> str:
        """Identifier in the result tables; equal arguments give an equal key."""
        return f"{self.name}-{_digest(self.arguments)}"

    @property
    def table(self) -> str:
        """Name of the result table, which is that of the measuring module."""
        return self.function.partition(":")[0].rpartition(".")[2]


@dataclass(frozen=True)
class ExperimentResults:
    """Results of one experiment, in memory.

    Attributes:
        runs: one row per training run: name, settings, status, metrics; `curve` has (CPU seconds, steps, error) per
            evaluation, `prediction` the arrays of the solution where the experiment needs them.
        measured: arguments and result of each measurement.
        machines: the environments that the results were computed in, each with its number of results, `count`.
    """

    runs: Sequence[dict[str, Any]] = ()
    measured: Sequence[tuple[Row, Row]] = ()
    machines: Sequence[Row] = ()


def _no_work(profile: Profile) -> list[Any]:
    return []


@dataclass(frozen=True)
class Experiment:
    """A table or figure of the study, as a declaration; `reproduction.runner` does the work."""

    name: str
    title: str
    runs: Callable[[Profile], Sequence[Run]] = _no_work
    measurements: Callable[[Profile], Sequence[Measurement]] = _no_work
    tables: Callable[[ExperimentResults], list[Table]] | None = None
    figure: Callable[[ExperimentResults, Path], None] | None = None
    claims: Callable[[ExperimentResults], list[Claim]] = field(default=lambda results: [])
    #: Remark for readers, for instance on what is published.
    note: str = ""
    #: Keep the predicted solution of the runs as well.
    needs_prediction: bool = False
    #: Position in the report; the paper's own tables and figures come first.
    position: int = 100


def named(settings: Settings) -> Run:
    """Name a run after its settings, so that experiments that need the same run share it."""
    words = [settings.problem, settings.engine]
    words += [settings.network] * (settings.network != "mlp") + [settings.coupled] * (settings.coupled != "isolate")
    # Without defaults, so that a setting that a later version adds does not rename existing runs.
    return Run(
        "-".join([*words, f"seed{settings.seed}", _digest(settings.model_dump(exclude_defaults=True))]), settings
    )


def _digest(values: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:8]
