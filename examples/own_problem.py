"""A problem of your own is one function that returns a `Problem`. This one is an inverse problem as well.

The viscosity of Burgers' equation is unknown: it is found, together with the solution, from 200 noisy measurements.

    python examples/own_problem.py            (two minutes on two cores)
    dudx train own_problem:viscosity --out runs/viscosity       (from this folder)
"""

from __future__ import annotations

import math
import tempfile

import numpy as np
import torch
from torch import Generator, nn

from dudx import Residual
from dudx.lab import Condition, Problem, make_settings, reference, train
from dudx.lab.problems.base import Points
from dudx.lab.problems.geometry import Interval

INPUTS = ("x", "t")
DOMAIN = Interval(-1.0, 1.0) * Interval(0.0, 1.0)
TRUE_VISCOSITY = 0.01 / math.pi
NOISE = 0.01


def viscosity() -> Problem:
    """Find ν in u_t + u u_x = ν u_xx from measurements of u."""
    # Learning log ν keeps ν positive and its gradient of a sensible size; the start is ten times the truth.
    log_nu = nn.Parameter(torch.tensor(math.log(10 * TRUE_VISCOSITY)))
    generator = Generator().manual_seed(0)
    places = DOMAIN.sample(200, generator)
    exact = torch.from_numpy(reference("burgers")(places.double().numpy())).float()
    measured = exact + NOISE * torch.randn(exact.shape, generator=generator)

    def measurements(n: int, generator: Generator, device: torch.device, dtype: torch.dtype) -> Points:
        return places.to(device, dtype), {"m": measured.to(device, dtype)}

    return Problem(
        name="viscosity",
        title="Burgers' viscosity from noisy data",
        inputs=INPUTS,
        domain=DOMAIN,
        residual=Residual(lambda u: u.t + u * u.x - log_nu.exp() * u.xx, INPUTS),
        conditions=[Condition("data", "data", Residual(lambda u, m: u - m, INPUTS, data=("m",)), measurements)],
        solution=lambda: reference("burgers"),
        unknowns={"log_nu": log_nu},
        # Settings that suit it, unless a profile's table for it or the command line says otherwise.
        defaults={"weight_data": 10.0},
    )


def main() -> None:
    """Solve it and compare the viscosity."""
    settings = make_settings(
        f"{__name__}:viscosity" if __name__ != "__main__" else "own_problem:viscosity",
        optimizer="soap", learning_rate=3e-3, epochs=2000, batch=1024, width=32,
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        result = train(settings, f"{folder}/run")
    found = float(np.exp(result["unknowns"]["log_nu"]))
    print(f"viscosity {found:.5f}, true {TRUE_VISCOSITY:.5f}: off by {100 * abs(found / TRUE_VISCOSITY - 1):.1f} %")
    print(f"solution: relative L2 {100 * result['l2_relative']:.2f} %")


if __name__ == "__main__":
    main()
