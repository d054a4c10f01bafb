"""Domains and functions that problems are stated with, and how far a function is from satisfying them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import dudx
from dudx.lab import Box, Disc, Interval, Problem
from dudx.lab.problems.conditions import Condition
from dudx.lab.run.networks.assembled import assembled
from dudx.lab.run.networks.mlp import MLP

F64 = torch.float64
PLATE = Box((0, 0), (1, 1)) - Disc((0.5, 0.5), 0.2)
SQUARE = Box((0, 0), (1, 1))
ROD = Interval(0, 2) * Interval(0, 1)


def laplace(u: Any) -> Any:
    return u.xx + u.yy


def drawn(condition: Condition, n: int = 400) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    points, data = condition.sample(n, torch.Generator().manual_seed(0), torch.device("cpu"), F64)
    return points, dict(data)


class Known(nn.Module):
    """A function whose derivatives are known."""

    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]):
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


def left_over(problem: Problem, function: Callable[[torch.Tensor], torch.Tensor]) -> dict[str, float]:
    """Return by how much a function violates each condition."""
    found = {}
    for condition in problem.conditions:
        x, data = drawn(condition)
        values = condition.residual(Known(function), x, dudx.AD(), **data)
        found[condition.name] = max(
            float(v.detach().abs().max()) for v in (values if isinstance(values, tuple) else (values,))
        )
    return found


def network(problem: Problem) -> nn.Module:
    torch.manual_seed(0)
    return assembled(problem, lambda i, o, b: MLP(i, o, 8, 2, b), problem.domain.bounds).double()
