"""Automatic weights of the parts of the loss, by their sensitivity to the parameters, for any optimizer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor

from dudx.engines.interface import Engine
from dudx.gradients.rewind import Rewind
from dudx.lab.run.objective import Objective, Part
from dudx.network.model_checks import Model
from dudx.optim import Balance, Term

#: Points per part at which its sensitivity is measured.
_POINTS = 256


class Weighting:
    """Updates weights relative to the equation's, which stays 1.

    An optimizer that takes terms finds its own at each step; this is for those that take gradients.
    """

    def __init__(self, objective: Objective, parameters: Sequence[Tensor]):
        self.objective, self.parameters = objective, list(parameters)
        self.balance = Balance(rate=0.5)

    def update(self, parts: Sequence[Part], seen: Callable[[Sequence[Tensor]], list[Model]], engine: Engine) -> None:
        """Set the weights of the objective's parts; parts with weight 0 keep it."""
        counted = [part for part in parts if part.weight > 0]
        points = [part.points[:_POINTS] for part in counted]
        data = [{name: values[:_POINTS] for name, values in part.data.items()} for part in counted]
        terms = [
            Term(part.residual, view, x, engine, None, given)
            for part, view, x, given in zip(counted, seen(points), points, data, strict=True)
        ]
        # Restore the random state, so that the steps after it do not change.
        rewind = Rewind(generator for term in terms for generator in term.generators())
        found = [len(of) / sum(1 / weight for weight in of) for of in self.balance.weights(terms, self.parameters)]
        rewind()
        for part, weight in zip(counted, found, strict=True):
            self.objective.weights[part.name] = weight / found[0]

    def state_dict(self) -> dict[str, Any]:
        return {"lengths": self.balance.lengths.clone(), "weights": dict(self.objective.weights)}

    def load_state_dict(self, state: Mapping[str, Any], /) -> None:
        self.balance.lengths = state["lengths"].clone()
        self.objective.weights.update(state["weights"])
