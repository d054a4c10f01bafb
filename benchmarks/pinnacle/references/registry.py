"""The reference of each problem, by the problem's name."""

from __future__ import annotations

from pathlib import Path

from benchmarks.pinnacle.references import spectral
from benchmarks.pinnacle.references.exact import FORMULAS, Formula
from benchmarks.pinnacle.references.samples import Computed, Samples
from dudx.lab import Problem

COMPUTED = {
    "ks": Computed(spectral.kuramoto_sivashinsky, "Fourier modes, 256 and 512"),
    "gs": Computed(spectral.gray_scott, "Fourier modes, 256² and 512²"),
    "burgers2d_c": Computed(spectral.burgers_plane, "Fourier modes, 512² and 1024²"),
    "heat2d_lt": Computed(spectral.heat_long, "sines, 128² and 192²"),
}
SOURCES: dict[str, Formula | Computed] = {**FORMULAS, **COMPUTED}


def samples_of(name: str, problem: Problem, folder: Path, data: Path | None = None) -> Samples:
    """Return the reference of a problem; what is computed is kept in a folder.

    Args:
        name: the name of the problem's file.
        problem: the problem, whose domain the points of formulas are spread over.
        folder: the folder of kept references.
        data: the folder of the suite's files, for problems that differ with it.
    """
    source = SOURCES[name]
    if isinstance(source, Formula):
        return source.samples(problem)
    return source.samples(folder / f"{name}{'' if data is None else '_data'}.npz", data)
