"""Evaluate a network: predictions at any points, and scores against a reference solution."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from dudx.lab.problems import Problem
from dudx.lab.problems.comsol import read_comsol
from dudx.lab.run.coupled_view import Views
from dudx.lab.run.metrics import scores

_ROWS_AT_ONCE = 2**14


class Evaluation:
    """Compares a network with the reference solution of its problem, and with a data file if one is given."""

    def __init__(self, problem: Problem, model: nn.Module, views: Views, reference_file: str | None):
        self.model, self.views = model, views
        self.solution = problem.solution() if problem.solution else None
        self.file = read_comsol(reference_file, len(problem.inputs)) if reference_file else None

    def predict(self, points: np.ndarray) -> np.ndarray:
        """Return the network's output at points, in evaluation mode."""
        model = self.views.evaluation()
        with torch.no_grad():
            slices = torch.from_numpy(np.ascontiguousarray(points)).split(_ROWS_AT_ONCE)
            values = [model(rows.to(self.views.at_rest)).cpu() for rows in slices]
        self.model.train()
        return torch.cat(values).double().numpy()

    def arrays(self) -> dict[str, np.ndarray]:
        """Return points, prediction and reference; nothing without a reference."""
        if self.solution is None:
            return {}
        points = self.solution.points
        return {"points": points, "prediction": self.predict(points), "reference": self.solution.values}

    def scores(self) -> dict[str, float]:
        """Return the scores against the reference; none without a reference."""
        return scored(self.arrays())

    def file_scores(self) -> dict[str, float]:
        """Return the scores against the data file."""
        return {} if self.file is None else scores(self.predict(self.file[0]), self.file[1])


def reference_arrays(problem: Problem, network: nn.Module) -> dict[str, np.ndarray]:
    """Return points, prediction and reference of a network; nothing for a problem without a reference solution."""
    if problem.solution is None:
        return {}
    solution = problem.solution()
    with torch.no_grad():
        values = network(torch.from_numpy(solution.points).to(next(network.parameters())))
    return {"points": solution.points, "prediction": values.double().cpu().numpy(), "reference": solution.values}


def scored(arrays: dict[str, np.ndarray]) -> dict[str, float]:
    """Return the scores of arrays from `Evaluation.arrays`."""
    return scores(arrays["prediction"], arrays["reference"]) if arrays else {}
