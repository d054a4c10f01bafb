"""Laplace's equation on a square with four holes, with dudx: the profile `cpu`, which is Levenberg-Marquardt."""

import os  # measuring
import sys  # measuring
import tempfile
from pathlib import Path  # measuring

import torch

import dudx
from dudx.lab import Condition, Problem, make_settings, storage, train
from dudx.lab.problems.geometry import Box, Circle, Cutout, Disc

square = Box((-0.5, -0.5), (0.5, 0.5))
domain = Cutout(square, *(Disc((x, y), 0.1) for x in (-0.3, 0.3) for y in (-0.3, 0.3)))
values = torch.tensor([0.0 if isinstance(piece.surface, Circle) else 1.0 for piece in domain.pieces])


def boundary(n, generator, device, dtype):
    points, _, piece = domain.sample_boundary(n, generator, device, dtype)
    return points, {"g": values.to(device, dtype)[piece].unsqueeze(1)}


def poisson():
    return Problem(
        name="poisson",
        title="Laplace's equation",
        inputs=("x", "y"),
        domain=domain,
        residual=dudx.Residual(lambda u: u.xx + u.yy, inputs=("x", "y")),
        conditions=[
            Condition("edge", "boundary", dudx.Residual(lambda u, g: u - g, ("x", "y"), data=("g",)), boundary)
        ],
        solution=lambda: dudx.lab.reference("poisson"),  # measuring
    )


if __name__ == "__main__":
    cap, seed = float(os.environ["CAP"]), int(sys.argv[1])  # measuring
    measured = {"seconds": cap, "seed": seed, "evaluate_every": 5, "threads": 1}  # measuring
    with tempfile.TemporaryDirectory() as folder:
        train(make_settings("poisson_dudx:poisson", "cpu", **measured), f"{folder}/run")
        rows = storage.read_table(Path(folder) / "run" / "metrics.csv")  # measuring
    curve = [[float(row["cpu_seconds"]), float(row["l2_relative"])] for row in rows if row["l2_relative"]]  # measuring
    storage.write_json(Path(os.environ["OUT"]), {"cap": cap, "curve": curve})  # measuring
