"""The suite's own data files, for those who have them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dudx.lab import Problem
from dudx.lab.problems.comsol import read_comsol

#: The file of each problem that the suite scores by data.
FILES = {
    "burgers1d_c": "burgers1d.dat",
    "burgers2d_c": "burgers2d_0.dat",
    "poisson2d_c": "poisson1_cg_data.dat",
    "poisson2d_cg": "poisson_boltzmann2d.dat",
    "poisson3d_cg": "poisson_3d.dat",
    "poisson2d_ms": "poisson_manyarea.dat",
    "heat2d_vc": "heat_darcy.dat",
    "heat2d_cg": "heat_complex.dat",
    "heat2d_lt": "heat_longtime.dat",
    "ns2d_c": "lid_driven_a4.dat",
    "ns2d_cg": "ns_0_obstacle.dat",
    "ns2d_lt": "ns_long.dat",
    "wave2d_cg": "wave_darcy.dat",
    "gs": "grayscott.dat",
    "ks": "Kuramoto_Sivashinsky.dat",
}


def suite_values(name: str, problem: Problem, data: Path | None) -> tuple[np.ndarray, np.ndarray] | None:
    """Return points and values of the suite's file for a problem, or None where there is no such file."""
    if data is None or name not in FILES or not (data / FILES[name]).exists():
        return None
    return read_comsol(data / FILES[name], len(problem.inputs), problem.outputs)
