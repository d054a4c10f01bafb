"""A solution against references in all forms, and outside of its domain."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch

from dudx.errors import InputError
from dudx.lab import Box, Dirichlet, Disc, Problem, Solution, make_settings
from dudx.lab.solving.values import OutsideDomainWarning

F64 = torch.float64


class _Known(torch.nn.Module):
    """u = x y as a network, with a parameter so that it has a number format."""

    def __init__(self) -> None:
        super().__init__()
        self.one = torch.nn.Parameter(torch.ones((), dtype=F64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.one * x[:, :1] * x[:, 1:]


def known() -> Solution:
    domain = Box((0, 0), (1, 1)) - Disc((0.5, 0.5), 0.2)
    problem = Problem(lambda u: u.xx + u.yy, ("x", "y"), domain, [Dirichlet(u=lambda x, y: x * y)])
    return Solution(problem, _Known(), make_settings(problem), {})


SAME = {
    "tensors by name": lambda x, y: torch.mul(x, y).reshape(-1, 1),
    "numpy by name": lambda x, y: np.asarray(x).astype(float) * np.asarray(y),
    "numpy methods": lambda x, y: x.astype(float) * y,
    "tensors of points": lambda points: points.prod(dim=1, keepdim=True),
    "tensors under another name": lambda p: torch.prod(p, 1),
    "an object of arrays": type("Table", (), {"__call__": lambda self, p: p[:, :1].astype(float) * p[:, 1:]})(),
    "a tuple": lambda x, y: (x * y,),
}


@pytest.mark.parametrize("name", SAME)
def test_references_are_functions_of_tensors_or_arrays(name: str) -> None:
    assert known().error(SAME[name]) < 1e-12


def test_references_that_do_not_fit_are_named_in_a_sentence() -> None:
    solution = known()
    assert solution.error(lambda x: 1.0) > 0.1  # the number 1 at all points
    faults: dict[str, Any] = {
        "zero at all points": lambda x: 0 * x,
        r"gives shape \(3,\) for u at 10000 points": lambda x: x[:3, 0],
        "gives 3 values per point": lambda x: torch.cat([x, x, x], dim=1),
        "no finite values": lambda x: x * float("nan"),
        "The reference fails: RuntimeError": lambda x: x @ x,
        "are not numbers": lambda x: "one",
    }
    for said, reference in faults.items():
        with pytest.raises(InputError, match=said):
            solution.error(reference)


def test_points_outside_of_the_domain_are_warned_of() -> None:
    solution = known()
    low, high = solution.problem.domain.bounds
    beyond = [high[0] + 0.5, high[1]]
    with pytest.warns(OutsideDomainWarning, match="1 of 2 points lie outside of the domain, such as x = "):
        assert solution([[*low], beyond])[1] == pytest.approx(beyond[0] * beyond[1])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        solution(solution.problem.domain.sample_boundary(100, torch.Generator().manual_seed(0)).points)
        solution.plot()
