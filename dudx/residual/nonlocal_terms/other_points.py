"""Numbers of a field at points other than the collocation points."""

from __future__ import annotations

from typing import Any, Protocol

from torch import Tensor

from dudx.engines.request import Request
from dudx.residual.linear_expression import Linear


class Nonlocal(Protocol):
    """Compute a request at rows (K, B, d), or (K, 1, d) where they are the same for all points, as (K·B or K, …)."""

    def __call__(self, request: Request, rows: Tensor) -> Any: ...


class NonlocalRecorder:
    """Record nonlocal terms."""

    shape: tuple[int, int]
    of: Any
    #: True once the function has asked for numbers at other points.
    nonlocal_terms = False

    def at(self, linear: Linear, rows: Tensor) -> Tensor:
        self.of(linear)  # at the points too, so that the request lists what the engine has to be able to compute
        self.nonlocal_terms = True
        return rows.new_full((*rows.shape[:2], self.shape[1]), float("nan"))


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
