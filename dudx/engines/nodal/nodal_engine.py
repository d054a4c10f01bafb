"""Engines that evaluate the network at the points alone, and combine the values there."""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from math import factorial

import torch
from torch import Tensor

from dudx.backend import tensor_checks
from dudx.engines.interface import Counted, Engine, RowsPerPoint
from dudx.engines.request import Request
from dudx.errors import InputError, UnsupportedError
from dudx.network import model_checks
from dudx.network.batch_bound import is_one_function
from dudx.network.model_checks import Model
from dudx.operators import Directional, Term

Axes = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Nodal(Counted):
    """One forward pass at the points; each derivative is a product of the values with weights that are known."""

    approximate = True

    @abstractmethod
    def weighted(self, x: Tensor) -> Callable[[Tensor, Axes], Tensor]:
        """The partial derivative (B, m) of values (B, m) at the points x along some axes."""

    def rows_for(self, x: Tensor, request: Request) -> RowsPerPoint:
        return RowsPerPoint(1, 1)

    def derivatives(self, model: Model, x: Tensor, request: Request) -> list[Tensor]:
        if not request.orders:
            u = model_checks.forward(model, x.clone())
            return [sum(operator.terms.values()) * u for operator in request]
        if tensor_checks.moves(x):
            raise UnsupportedError(
                f"{type(self).__name__} has its points for good and cannot say what happens when one of them moves; "
                "use points without requires_grad, or dudx.AD()."
            )
        if not is_one_function(model):
            raise UnsupportedError(
                f"{type(self).__name__} takes the values at all points for those of one function, and with data of "
                "its own, or isolated, each point has another one: use dudx.AD(), dudx.Taylor() or dudx.FD()."
            )
        partial = self.weighted(x)
        u = model_checks.forward(model, x.clone())
        known: dict[Axes, Tensor] = {(): u}
        results = []
        for operator in request:
            total = torch.zeros_like(u)
            for term, coefficient in operator.terms.items():
                for axes, factor in written_out(term, request):
                    if axes not in known:
                        known[axes] = partial(u, axes)
                    value = known[axes] if factor is None else factor * known[axes]
                    total = total + coefficient * value
            results.append(total)
        return results


def written_out(term: Term, request: Request) -> list[tuple[Axes, Tensor | None]]:
    """A term as partial derivatives: (v·∇)^order has factors (B, 1), a partial derivative has none."""
    if not isinstance(term, Directional):
        return [(term.axes, None)]
    parts: list[tuple[Axes, Tensor | None]] = []
    vector = request.vectors[term.slot]
    for axes in itertools.combinations_with_replacement(range(vector.shape[1]), term.order):
        repeated = 1
        for count in Counter(axes).values():
            repeated *= factorial(count)
        factor = vector[:, list(axes)].prod(1, keepdim=True)
        parts.append((axes, factor * (factorial(term.order) / repeated)))
    return parts


def same_points(x: Tensor, points: Tensor) -> bool:
    """Whether a batch is a set of points, in its order, up to the rounding of the batch's format."""
    if not tensor_checks.readable(x):
        raise UnsupportedError(
            "The weights of this engine belong to certain points, and torch.func.vmap, or an ensemble whose members "
            "have points of their own, hides which these are: give all of them the same points, or use dudx.AD()."
        )
    return x.shape == points.shape and torch.equal(x, points.to(x))


def refused(engine: Engine, count: int) -> InputError:
    """The refusal of another batch."""
    name = type(engine).__name__
    return InputError(
        f"This batch is not the {count} points of this {name}, in their order, and the weights hold for these only: "
        "evaluate at engine.points, whole and not in slices."
    )
