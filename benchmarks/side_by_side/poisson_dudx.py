"""Laplace's equation on a square with four holes, with dudx: the profile `cpu`, which is Levenberg-Marquardt."""

import os  # measuring
import sys  # measuring
import tempfile
from pathlib import Path  # measuring

import dudx.lab as lab  # measuring
from dudx.lab import Box, Dirichlet, Disc, Problem, make_settings, train

domain = Box((-0.5, -0.5), (0.5, 0.5))
for x in (-0.3, 0.3):
    for y in (-0.3, 0.3):
        domain = domain - Disc((x, y), 0.1)


def poisson():
    return Problem(
        lambda u: u.xx + u.yy,
        inputs=("x", "y"),
        domain=domain,
        conditions=[Dirichlet(u=1.0, on=domain.outside), Dirichlet(u=0.0, on=domain.holes)],
        solution=lambda: lab.reference("poisson"),  # measuring
    )


if __name__ == "__main__":
    cap, seed = float(os.environ["CAP"]), int(sys.argv[1])  # measuring
    measured = {"seconds": cap, "seed": seed, "evaluate_every": 5, "threads": 1}  # measuring
    with tempfile.TemporaryDirectory() as folder:
        train(make_settings("poisson_dudx:poisson", "cpu", **measured), f"{folder}/run")
        rows = lab.file_formats.read_table(Path(folder) / "run" / "metrics.csv")  # measuring
    curve = [[float(row["cpu_seconds"]), float(row["l2_relative"])] for row in rows if row["l2_relative"]]  # measuring
    lab.file_formats.write_json(Path(os.environ["OUT"]), {"cap": cap, "curve": curve})  # measuring
