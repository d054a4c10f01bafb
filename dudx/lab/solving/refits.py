"""Solutions of one problem with other seeds and resampled measurements, whose spread shows what is uncertain."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Generator

from dudx.errors import InputError, whole_number
from dudx.lab.problems import Problem
from dudx.lab.problems.conditions import Data
from dudx.lab.solving.solution import Solution
from dudx.lab.solving.solver import solve


def refits(problem: Problem, count: int = 10, resample: bool = True, **options: Any) -> list[Solution]:
    """Solve a problem several times, with another seed and resampled measurements each.

    ```python
    k = np.stack([one(points)[:, 1] for one in refits(problem, 10, minutes=1)])
    print(k.mean(0), k.std(0))
    ```

    Args:
        problem: the problem, such as one with unknown functions.
        count: the number of solutions.
        resample: draw the measurements of each `Data` with replacement (bootstrap), so that the spread shows the effect
            of noise; False shows that of the seeds alone.
        options: as for `solve`; `seed` is the first seed.
    """
    whole_number(count, "The number of solutions")
    if not isinstance(problem, Problem):
        raise InputError(f"refits takes a dudx.lab.Problem; got {type(problem).__name__}.")
    first = options.pop("seed", 0)
    return [
        solve(_resampled(problem, seed) if resample else problem, **options, seed=seed)
        for seed in range(first, first + count)
    ]


def _resampled(problem: Problem, seed: int) -> Problem:
    """Return the problem with the measurements of each data condition drawn with replacement."""
    generator, specs = Generator().manual_seed(seed), []
    for spec in problem.conditions.specs:
        if isinstance(spec, Data) and len(spec.points) > 1:
            rows = torch.randint(len(spec.points), (len(spec.points),), generator=generator)
            given = {key: values[rows] for key, values in spec.given.items()}
            specs.append(Data(spec.points[rows], name=spec.name, **given))
        else:
            specs.append(spec)
    return replace(problem, conditions=specs)
