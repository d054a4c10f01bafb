"""A problem of your own is one function that returns a `Problem`; this one is an inverse problem.

The viscosity of Burgers' equation is unknown. It is found together with the solution, from 200 noisy measurements.

    python examples/own_problem.py            (two minutes on two cores)
    dudx train own_problem:viscosity --out runs/viscosity       (from this folder)
"""

from __future__ import annotations

import math
import tempfile

import numpy as np
import torch
from torch import Generator

from dudx.errors import percent
from dudx.lab import Data, Interval, Problem, make_settings, reference, train

DOMAIN = Interval(-1.0, 1.0) * Interval(0.0, 1.0)
TRUE_VISCOSITY = 0.01 / math.pi
NOISE = 0.01


def viscosity() -> Problem:
    """Find ν in u_t + u u_x = ν u_xx from measurements of u."""
    generator = Generator().manual_seed(0)
    places = DOMAIN.sample(200, generator)
    exact = torch.from_numpy(reference("burgers")(places.double().numpy())).float()
    return Problem(
        # log ν as the unknown keeps ν positive and scales its gradient. The initial value is ten times the true one.
        lambda u, log_nu: u.t + u * u.x - log_nu.exp() * u.xx,
        inputs=("x", "t"),
        domain=DOMAIN,
        conditions=[Data(places, u=exact + NOISE * torch.randn(exact.shape, generator=generator))],
        unknowns={"log_nu": math.log(10 * TRUE_VISCOSITY)},
        name="viscosity",
        title="Burgers' viscosity from noisy data",
        solution=lambda: reference("burgers"),
        # Default settings; a profile's table for this problem and the command line have precedence.
        defaults={"weight_data": 10.0},
    )


def main() -> None:
    """Solve the problem and compare the viscosity with the true one."""
    settings = make_settings(
        f"{__name__}:viscosity" if __name__ != "__main__" else "own_problem:viscosity",
        optimizer="soap", learning_rate=3e-3, epochs=2000, batch=1024, width=32,
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        result = train(settings, f"{folder}/run")
    found = float(np.exp(result["unknowns"]["log_nu"]))
    print(f"viscosity {found:.5f}, true {TRUE_VISCOSITY:.5f}: off by {percent(abs(found / TRUE_VISCOSITY - 1))}")
    print(f"solution: relative L2 {percent(result['l2_relative'])}")


if __name__ == "__main__":
    main()
