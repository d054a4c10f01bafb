"""Automatic weights of the terms of a loss, from the rows of their Jacobians.

A term's weight is one over the mean squared norm of its rows, so that no term's curvature dominates. It is smoothed
geometrically over steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import torch
from torch import Tensor

from dudx import errors
from dudx.errors import InputError
from dudx.gradients.jacobian_rows import Jacobian
from dudx.optim.step_solvers import Reduce
from dudx.optim.terms import LeastSquares

Summary = Literal["mean", "median"]


class Balance:
    """Automatic weights of terms, one per equation.

    Args:
        rate: the smoothing rate, above 0 and up to 1, where 1 uses the newest weight alone.
        by: "mean" of the squared row norms, or "median", which is robust to outliers such as a singular corner.
    """

    def __init__(self, rate: float = 0.1, by: Summary = "mean"):
        if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 < rate <= 1:
            raise InputError(f"The rate of the weights is a number above 0, at most 1; got {rate!r}.")
        self.rate, self.by = float(rate), errors.one_of(by, Summary, "by")
        #: Smoothed mean squared row norms, in the order of the equations; empty before the first step.
        self.lengths = torch.zeros(0, dtype=torch.float64, device="cpu")

    def weights(self, terms: Sequence[LeastSquares], parameters: Sequence[Tensor]) -> list[list[float]]:
        """Compute the weight of each equation of each term, for any optimizer; not needed in every step."""
        parts = [term.linearized(parameters, None)[1] for term in terms]
        return self.of_rows(terms, parts, [None] * len(parts), lambda tensor: tensor)

    def of_rows(
        self,
        terms: Sequence[LeastSquares],
        parts: Sequence[Jacobian],
        written: Sequence[Tensor | None],
        reduce: Reduce,
    ) -> list[list[float]]:
        """Compute the weights from known Jacobians, in factors and optionally as matrices."""
        found: Iterator[float] = iter(())
        lengths: list[Tensor] = []
        for term, part, rows in zip(terms, parts, written, strict=True):
            if term.weight is None:
                squares = part.squared_row_norms() if rows is None else rows.norm(dim=1).square_()
                lengths.extend(squares.split(part.samples))
        if lengths:
            found = iter(self.update(lengths, reduce).tolist())
        return [
            [next(found) if term.weight is None else term.weight for _ in part.equations]
            for term, part in zip(terms, parts, strict=True)
        ]

    def update(self, squared_lengths: list[Tensor], reduce: Reduce) -> Tensor:
        """Update the smoothed norms with the squared row norms of each equation; return one weight per equation."""
        pairs = [
            torch.stack([rows.sum() if self.by == "mean" else rows.median() * len(rows), rows.new_tensor(len(rows))])
            for rows in squared_lengths
        ]
        summed = reduce(torch.stack(pairs).double())
        now = (summed[:, 0] / summed[:, 1]).cpu().clamp(min=1e-300)
        if len(self.lengths) != len(now):
            self.lengths = now
        else:
            self.lengths = torch.exp((1 - self.rate) * self.lengths.log() + self.rate * now.log())
        return 1 / self.lengths
