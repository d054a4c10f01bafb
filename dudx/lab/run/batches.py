"""Training points, redrawn every few epochs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Generator, Tensor

from dudx.lab.run.objective import Objective, Part


class Batches:
    """Points of every part of the loss, kept for some epochs and stored in checkpoints.

    Args:
        objective: draws the points.
        every: epochs between new points.
        generator: the random generator for the points.
        residual: computes the size of the equation's residual at points for the present network.
    """

    def __init__(
        self, objective: Objective, every: int, generator: Generator, residual: Callable[[Tensor], Tensor] | None
    ):
        self.objective, self.every, self.generator, self.residual = objective, every, generator, residual
        self._parts: list[Part] = []

    def at(self, epoch: int) -> tuple[list[Part], bool]:
        """Return the parts of an epoch, and True if their points are new."""
        fresh = epoch % self.every == 0 or not self._parts
        if fresh:
            self._parts = self.objective.draw(self.generator, self.residual)
        return self._parts, fresh

    def reweighed(self) -> list[Part]:
        """Return the present points with the objective's current weights."""
        self._parts = self.objective.at([(part.points, part.data) for part in self._parts])
        return self._parts

    def state_dict(self) -> dict[str, Any]:
        """Return the points; none if every epoch draws new ones."""
        kept = self._parts if self.every > 1 else []
        return {"points": [part.points for part in kept], "data": [dict(part.data) for part in kept]}

    def load_state_dict(self, state: Mapping[str, Any], /) -> None:
        self._parts = []
        if state["points"]:
            device = self.objective.device
            data = [{name: values.to(device) for name, values in of.items()} for of in state["data"]]
            points = [points.to(device) for points in state["points"]]
            self._parts = self.objective.at(list(zip(points, data, strict=True)))
