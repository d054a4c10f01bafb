"""Weights of noisy measurements.

A network that may bend as it likes fits the noise as well. Measurements that no step is made with tell how large it is:
there the network misses at least by that. So the others count as much as the equation does, each by what it misses at
points that no step has seen: the better the equation holds, the less the noise can bend the solution away from it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

from dudx.engines.interface import Engine
from dudx.lab.run.objective import Part
from dudx.network.model_checks import Model

#: The share of the new weight in the smoothed one, per step.
_RATE = 0.1


class Noise:
    """Weights of measurements, smoothed over steps in logarithms."""

    def __init__(self) -> None:
        #: The weighted mean square of the equation in the last step, at new points; 0 before the first step.
        self.equation = 0.0
        self._logarithms: dict[str, float] = {}

    def weight(self, part: Part, model: Model, engine: Engine) -> float | None:
        """Return the weight of a part with withheld measurements; None before the first step."""
        assert part.kept_back is not None
        points, data = part.kept_back
        with torch.no_grad():
            missed = float(part.residual.loss(model, points, engine, **data))
        if not 0 < missed < math.inf or not 0 < self.equation < math.inf:
            return None
        now = math.log(self.equation / missed)
        before = self._logarithms.get(part.name, now)
        self._logarithms[part.name] = (1 - _RATE) * before + _RATE * now
        return math.exp(self._logarithms[part.name])

    def state_dict(self) -> dict[str, Any]:
        return {"equation": self.equation, "logarithms": dict(self._logarithms)}

    def load_state_dict(self, state: Mapping[str, Any], /) -> None:
        self.equation, self._logarithms = state["equation"], dict(state["logarithms"])
