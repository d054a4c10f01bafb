"""Experiments. Every file in this folder that defines an `EXPERIMENT` is one, named after the file."""

from __future__ import annotations

from functools import cache

from dudx.lab.named_objects import held_in
from reproduction.experiment import Experiment

__all__ = ["Experiment", "experiments"]


@cache
def experiments() -> dict[str, Experiment]:
    """Return the experiments by name, in the order of the report, which is that of the paper."""
    found: dict[str, Experiment] = held_in(__name__, "EXPERIMENT")
    return dict(sorted(found.items(), key=lambda item: (item[1].position, item[0])))
