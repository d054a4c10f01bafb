"""Separable networks on a grid: derivatives of each axis' own network, put together by outer products."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import factorial
from typing import Any

import torch
from torch import Tensor

from dudx.backend import tensor_checks
from dudx.engines.first_use import sound_derivatives
from dudx.engines.interface import Counted, Engine, RowsPerPoint, Stepped, refuse_unset
from dudx.engines.request import Request
from dudx.engines.taylor.taylor_engine import Taylor
from dudx.errors import InputError, UnsupportedError
from dudx.network import model_checks
from dudx.network.model_checks import Model
from dudx.operators import D, Directional, Term

Axes = tuple[int, ...]

#: The rows at which it is checked that a network is what its factors say.
_CHECKED = 8


@dataclass(frozen=True, eq=False)
class Separated(Counted, Stepped):
    """Derivatives of u(x) = Σ_r Π_i f_i,r(x_i) on a grid, by those of each f_i along its own axis.

    A grid of 64³ points takes 3 × 64 rows through small networks instead of 262 144 through a large one. The network
    says what it is made of by `factors`, a list with a network for each axis, from (n, 1) to (n, rank * outputs), the
    outputs changing first; `dudx.lab.run.networks.separable.Separable` is one. At some points it is checked that the
    network is the sum of their products.

    Args:
        axes: the coordinates along each axis, tensors (n_i,).
        inner: the engine for derivatives along an axis.

    Example:
        >>> class Product(torch.nn.Module):
        ...     factors = (torch.sin, torch.exp)
        ...     def forward(self, x):
        ...         return torch.sin(x[:, :1]) * torch.exp(x[:, 1:])
        >>> engine = dudx.Separated([torch.linspace(0, 1, 5), torch.linspace(0, 2, 7)])
        >>> mixed = dudx.evaluate(Product(), engine.points, dudx.D(0, 1), engine)
        >>> mixed.shape, torch.allclose(mixed, torch.cos(engine.points[:, :1]) * torch.exp(engine.points[:, 1:]))
        (torch.Size([35, 1]), True)
    """

    axes: Sequence[Tensor]
    inner: Engine = field(default_factory=Taylor)

    def __post_init__(self) -> None:
        axes = tuple(self.axes)
        if not axes or not all(
            isinstance(a, Tensor) and a.ndim == 1 and len(a) and a.is_floating_point() for a in axes
        ):
            raise InputError("Separated takes the coordinates along each axis, a list of floating-point tensors (n,).")
        if not isinstance(self.inner, Engine):
            raise InputError(f"Separated takes derivatives along an axis by an engine; got {self.inner!r}.")
        object.__setattr__(self, "axes", tuple(axis.detach().clone() for axis in axes))

    @property
    def points(self) -> Tensor:
        """The grid (N, d); the last axis changes first."""
        return torch.stack([column.flatten() for column in torch.meshgrid(*self.axes, indexing="ij")], dim=1)

    def rows_for(self, x: Tensor, request: Request) -> RowsPerPoint:
        return RowsPerPoint(1, 1)

    def refuse_unset(self, request: Request) -> None:
        refuse_unset(self.inner, Request(tuple(D(*[0] * order) for order in _orders_along_axes(request))))

    def derivatives(self, model: Model, x: Tensor, request: Request) -> list[Tensor]:
        points = self.points
        if x.shape != points.shape or (not x.is_meta and not _same_points(x, points)):
            raise InputError(
                f"This batch is not the {len(points)} points of this Separated, in their order, and the factors are "
                "evaluated at these only: evaluate at engine.points, whole and not in slices."
            )
        if tensor_checks.moves(x):
            raise UnsupportedError("The grid of Separated is fixed; use points without requires_grad, or dudx.AD().")
        factors = _factors(model, x.shape[1])
        outputs = self._checked(model, factors, x)
        asked = [
            [(c, _partial_derivatives(term, request)) for term, c in operator.terms.items()] for operator in request
        ]
        wanted = {axes for terms in asked for _, parts in terms for axes, _ in parts} | {()}
        tables = self._along_axes(factors, x, wanted, outputs)
        known = {axes: _outer([table[axes.count(i)] for i, table in enumerate(tables)]) for axes in wanted}
        results = []
        for terms in asked:
            total = torch.zeros_like(known[()])
            for coefficient, parts in terms:
                for axes, factor in parts:
                    total = total + coefficient * (known[axes] if factor is None else factor * known[axes])
            results.append(total)
        return results

    def _along_axes(
        self, factors: Sequence[Callable], x: Tensor, wanted: set[Axes], outputs: int
    ) -> list[dict[int, Tensor]]:
        """For each axis its network's derivatives by order, (n, rank, outputs)."""
        tables = []
        for number, (factor, axis) in enumerate(zip(factors, self.axes, strict=True)):
            orders = sorted({axes.count(number) for axes in wanted})
            column = axis.to(x).unsqueeze(1)
            along = Request(tuple(D(*[0] * order) for order in orders))
            values = sound_derivatives(self.inner, factor, column, along)
            tables.append({k: value.unflatten(1, (-1, outputs)) for k, value in zip(orders, values, strict=True)})
        return tables

    def _checked(self, model: Model, factors: Sequence[Callable], x: Tensor) -> int:
        """How many outputs there are, once the network is found to be what its factors say."""
        some = x[torch.linspace(0, len(x) - 1, min(_CHECKED, len(x)), device=x.device).long()]
        with torch.no_grad():
            u = model_checks.forward(model, some.clone())
            product = torch.ones(1, dtype=x.dtype, device=x.device)
            for number, factor in enumerate(factors):
                product = product * model_checks.forward(factor, some[:, number : number + 1].clone())
            if product.shape[1] % u.shape[1] == 0:
                sums = product.unflatten(1, (-1, u.shape[1])).sum(1)
                # Sums of many products, each in another order than the network's own.
                close = 1e3 * torch.finfo(u.dtype).eps * product.abs().sum(1, keepdim=True)
                if u.is_meta or bool(((sums - u).abs() <= close).all()):
                    return u.shape[1]
        raise InputError(
            "The network is not the sum of the products of its factors, so that derivatives along the axes are not its "
            "own: take off what is wrapped around it, or use another engine."
        )


def _same_points(x: Tensor, points: Tensor) -> bool:
    """Return True if a batch is the points of the grid in their order, up to the rounding of its format."""
    if not tensor_checks.readable(x):
        raise UnsupportedError(
            "The grid of Separated is fixed, and torch.func.vmap hides which points these are: give all calls the same "
            "points, or use dudx.AD()."
        )
    return torch.equal(x, points.to(x))


def _partial_derivatives(term: Term, request: Request) -> list[tuple[Axes, Tensor | None]]:
    """Write a term as partial derivatives: those of (v·∇)^order have factors (B, 1), a partial derivative has none."""
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


def _orders_along_axes(request: Request) -> set[int]:
    """The orders of the derivatives of single factors that a request takes."""
    orders: set[int] = set()
    for term in (term for operator in request for term in operator.terms):
        if isinstance(term, Directional):
            orders.update(range(term.order + 1))
        else:
            orders.update(term.axes.count(axis) for axis in term.axes)
    return orders


def _factors(model: Any, dimensions: int) -> Sequence[Callable]:
    factors = getattr(model, "factors", None)
    if factors is None or len(factors) != dimensions:
        raise InputError(
            f"Separated needs a network with a list `factors` of {dimensions} networks, one for each axis, such as "
            "dudx.lab.run.networks.separable.Separable; use another engine for others."
        )
    return list(factors)


def _outer(tables: Sequence[Tensor]) -> Tensor:
    """Σ_r Π_i of (n_i, rank, outputs), at all points of the grid, (N, outputs)."""
    total = tables[0]
    for table in tables[1:-1]:
        total = (total.unsqueeze(1) * table.unsqueeze(0)).flatten(0, 1)
    if len(tables) == 1:
        return total.sum(1)
    return torch.einsum("arm,brm->abm", total, tables[-1]).flatten(0, 1)
