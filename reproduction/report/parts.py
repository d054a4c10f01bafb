"""The three parts of the report, and the reproduction that each table or figure of them is taken from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from reproduction.experiments import Experiment
from reproduction.experiments.data import Data


@dataclass(frozen=True)
class Source:
    """An experiment and the folder of the reproduction that its data are in."""

    folder: Path
    experiment: Experiment

    @property
    def data(self) -> Data:
        return Data(self.folder / "data" / self.experiment.name)


_TABLES = ("table-poisson", "table-burgers", "table-heat", "table-summary", "fig-5")

#: Title, introduction, and the experiments with the profiles whose folders they are in.
PARTS: list[tuple[str, str, list[tuple[str, str]]]] = [
    (
        "Part 1: the paper's protocol, as far as a CPU goes",
        "The optimizer, learning rate, networks, weights, coordinates and 20 000 epochs of the paper; batches of 1024 "
        "in place of 8192, fewer seeds, and heat with a network of 4 × 128 (`dudx reproduce --profile protocol`). "
        "What needs no training is as published (`--profile cpu`).",
        [("cpu", name) for name in ("table-1", "fig-2", "fig-3")]
        + [("protocol", name) for name in _TABLES]
        + [("cpu", "appendix-b")],
    ),
    (
        "Part 2: solved problems",
        "The same questions asked of networks that solve their problem: second order in double precision, a minute or "
        "two on one core, errors a hundred times smaller, where differences between engines show if there are any "
        "(`dudx reproduce --profile cpu`).",
        [("cpu", name) for name in ("fig-1", *_TABLES, "coupled-training")],
    ),
    (
        "Part 3: cost",
        "Time and memory of a training step on a CPU, and what it takes to reach an error "
        "(`dudx reproduce fig-4 time-to-error --profile cpu`).",
        [("cpu", name) for name in ("fig-4", "time-to-error")],
    ),
]
