"""Numbers of a field at points other than the collocation points, and from one side of them."""

from __future__ import annotations

from typing import Any, Protocol

from torch import Tensor

from dudx.engines.interface import Side
from dudx.engines.request import Request
from dudx.residual.linear_expression import Linear


class Nonlocal(Protocol):
    """Compute a request at rows (K, B, d), or (K, 1, d) where they are the same for all points, as (K·B or K, …).

    With a side it is computed by the engine's one-sided stencils; the result is None if it has none.
    """

    def __call__(self, request: Request, rows: Tensor, side: Side | None = None) -> Any: ...


class NonlocalRecorder:
    """Record nonlocal terms."""

    shape: tuple[int, int]
    of: Any
    #: True once the function has asked for numbers at other points, or from one side.
    nonlocal_terms = False

    def at(self, linear: Linear, rows: Tensor) -> Tensor:
        self.of(linear)  # at the points too, so that the request lists what the engine has to be able to compute
        self.nonlocal_terms = True
        return rows.new_full((*rows.shape[:2], self.shape[1]), float("nan"))

    def sided(self, linear: Linear, side: Side) -> Tensor:
        self.nonlocal_terms = True  # a one-sided stencil is a second request at the same points
        return self.of(linear)


class NonlocalReplay:
    """Compute nonlocal terms, whose points are known only when the function is called."""

    inputs: tuple[str, ...]
    like: Tensor
    of: Any
    _sum: Any
    _other_points: Nonlocal | None

    def at(self, linear: Linear, rows: Tensor) -> Tensor:
        self.of(linear)
        assert self._other_points is not None
        operators = (operator.expanded(len(self.inputs)) for operator in linear.operators.values())
        found = self._other_points(Request(tuple(operators)), rows)
        return self._sum(zip(linear.operators, found, strict=True)).unflatten(0, (len(rows), -1))

    def sided(self, linear: Linear, side: Side) -> Tensor:
        central = self.of(linear)
        assert self._other_points is not None
        found = self._other_points(Request(tuple(linear.operators.values())), self.like.unsqueeze(0), side)
        return central if found is None else self._sum(zip(linear.operators, found, strict=True))
