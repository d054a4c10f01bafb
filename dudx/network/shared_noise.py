"""Networks that draw random numbers, as dropout does, in stencils: all rows of a point see the same ones."""

from __future__ import annotations

from torch import Tensor

from dudx.errors import UnsupportedError
from dudx.network.model_checks import Model
from dudx.network.single_moves import on_each


class SameNumbers:
    """A network on blocks of rows, one row of each block for each point; every block draws the same numbers."""

    def __init__(self, model: Model, points: int):
        self.model, self.points = model, points

    def __call__(self, rows: Tensor) -> Tensor:
        if len(rows) % self.points:
            raise UnsupportedError(
                "This network draws random numbers, and differences need the same ones at all rows that belong to a "
                "point, of which some points have more than others here; use dudx.AD(), or model.eval()."
            )
        try:
            return on_each(self.model, rows.view(-1, self.points, rows.shape[1])).flatten(0, 1)
        except UnsupportedError as error:
            raise UnsupportedError(
                "This network draws random numbers, and differences need the same ones at all rows that belong to a "
                "point, which torch.func.vmap cannot give it; use dudx.AD(), or model.eval()."
            ) from error
