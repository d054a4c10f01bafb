"""Which streams a jet carries: directions with their orders, and operators collapsed into one stream each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Quadratic(NamedTuple):
    """The term coefficient · ∂_first ∂_second of an operator."""

    first: int
    second: int
    coefficient: float


class Power(NamedTuple):
    """The term coefficient · ∂^order along a direction, of order 3 or more."""

    direction: int
    order: int
    coefficient: float


@dataclass(frozen=True)
class Collapsed:
    """The nonlinear part of an operator: its terms of order 2 and above. First-order terms are in its seed."""

    quadratics: tuple[Quadratic, ...] = ()
    powers: tuple[Power, ...] = ()


@dataclass(frozen=True)
class Layout:
    """Which streams a jet has, after the value: first orders, then higher orders, then operators."""

    #: The highest order carried along each direction.
    orders: tuple[int, ...]
    operators: tuple[Collapsed, ...]

    @property
    def directions(self) -> int:
        return len(self.orders)

    def higher(self) -> list[tuple[int, int]]:
        """(direction, order) of the streams of order 2 and above, in their order."""
        top = max(self.orders, default=0)
        return [(k, p) for p in range(2, top + 1) for k, highest in enumerate(self.orders) if highest >= p]

    def index(self, direction: int, order: int) -> int:
        """The place of a stream among the stacked ones."""
        return direction if order == 1 else self.directions + self.higher().index((direction, order))

    @property
    def first_operator(self) -> int:
        return sum(self.orders)

    @property
    def streams(self) -> int:
        return self.first_operator + len(self.operators)

    @property
    def top(self) -> int:
        """The highest derivative of a nonlinearity that is needed."""
        powers = [power.order for operator in self.operators for power in operator.powers]
        second = any(operator.quadratics for operator in self.operators)
        return max([1, *self.orders, *powers, 2 if second else 1])
