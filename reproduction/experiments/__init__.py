"""The experiments. The folder is the registry: a file of it that holds an `EXPERIMENT` is one, by the file's name."""

from __future__ import annotations

from functools import cache

from dudx.lab.named_objects import held_in
from reproduction.experiments.base import Experiment

__all__ = ["Experiment", "experiments"]


@cache
def experiments() -> dict[str, Experiment]:
    """The experiments by name, in their order in the report, which is that of the paper."""
    found: dict[str, Experiment] = held_in(__name__, "EXPERIMENT")
    return dict(sorted(found.items(), key=lambda item: (item[1].place, item[0])))
