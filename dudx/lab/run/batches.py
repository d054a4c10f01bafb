"""The points that a run trains on, drawn anew now and then."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Generator, Tensor

from dudx.lab.run.objective import Objective, Part


class Batches:
    """The points of every part, kept for some epochs; with them a run is resumed between two draws.

    Args:
        objective: what draws them.
        every: epochs between new points.
        generator: what they are drawn from.
        residual: the size of the equation's residual at points, as the network is when it is asked.
    """

    def __init__(
        self, objective: Objective, every: int, generator: Generator, residual: Callable[[Tensor], Tensor] | None
    ):
        self.objective, self.every, self.generator, self.residual = objective, every, generator, residual
        self._parts: list[Part] = []

    def at(self, epoch: int) -> tuple[list[Part], bool]:
        """The parts of an epoch, and whether their points are fresh."""
        fresh = epoch % self.every == 0 or not self._parts
        if fresh:
            self._parts = self.objective.draw(self.generator, self.residual)
        return self._parts, fresh

    def reweighed(self) -> list[Part]:
        """Return the present points with the objective's current weights."""
        self._parts = self.objective.at([(part.points, part.data) for part in self._parts])
        return self._parts

    def state_dict(self) -> dict[str, Any]:
        """The points; none where every epoch draws new ones."""
        kept = self._parts if self.every > 1 else []
        return {"points": [part.points for part in kept], "data": [dict(part.data) for part in kept]}

    def load_state_dict(self, state: Mapping[str, Any], /) -> None:
        self._parts = []
        if state["points"]:
            device = self.objective.device
            data = [{name: values.to(device) for name, values in of.items()} for of in state["data"]]
            points = [points.to(device) for points in state["points"]]
            self._parts = self.objective.at(list(zip(points, data, strict=True)))
