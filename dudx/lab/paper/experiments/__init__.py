"""The experiments by name: one file each, with an `EXPERIMENT`, and a line here."""

from __future__ import annotations

import importlib

from dudx.lab.paper.experiments.base import Experiment

__all__ = ["EXPERIMENTS", "Experiment"]

#: In the order of the paper.
_NAMES = (
    "fig-1",
    "table-1",
    "fig-2",
    "fig-3",
    "table-poisson",
    "table-burgers",
    "table-heat",
    "table-summary",
    "fig-4",
    "fig-5",
    "appendix-b",
    "coupled-training",
)
EXPERIMENTS: dict[str, Experiment] = {
    name: importlib.import_module(f"{__name__}.{name.replace('-', '_')}").EXPERIMENT for name in _NAMES
}
