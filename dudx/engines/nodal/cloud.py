"""RBF-FD: weights for scattered points, from polyharmonic splines and polynomials around each of them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from math import comb, factorial
from typing import Any

import torch
from torch import Tensor

from dudx.backend import tensor_checks
from dudx.engines.nodal.nodal_engine import Axes, Nodal, refused, same_points
from dudx.errors import InputError, UnsupportedError, whole_number
from dudx.network.chunking import chunked_rows

#: How many rows of distances, or systems of equations, are held at once.
_AT_ONCE = 2**22
#: Weights that miss a monomial by more than this share of their own size belong to points in a special position.
_MISSED = 1e-6
#: How many clouds are remembered: a batch and those of a problem's conditions.
_KEPT = 12


@dataclass(frozen=True, eq=False)
class Cloud(Nodal):
    """Derivatives from the values at neighbouring points of a cloud (RBF-FD, polyharmonic splines with polynomials).

    Distances are measured relative to the extent of the cloud along each axis, so that the units of the axes do not
    matter. The weights are computed once, when a derivative is asked for first; then a derivative is a forward pass at
    the points and a product. A derivative of order k is exact for polynomials up to the degree and converges with the
    power degree + 1 - k of the points' distance.

    Args:
        points: the cloud, (N, d); a batch that is another is refused. Without points every batch is its own cloud.
        degree: that of the polynomials, at least the order of the derivatives.
        neighbours: how many points a derivative is made of; by default twice as many as there are monomials.

    Example:
        >>> points = torch.rand(200, 2, dtype=torch.float64)
        >>> engine = dudx.Cloud(points, degree=3)
        >>> laplacian = dudx.evaluate(lambda x: (x**3).sum(1, keepdim=True), points, dudx.Laplacian(), engine)
        >>> torch.allclose(laplacian, 6 * points.sum(1, keepdim=True), atol=1e-6)
        True
    """

    name = "cloud"

    points: Tensor | None = None
    degree: int = 4
    neighbours: int | None = None
    #: The weights of the last clouds met, made anew after unpickling.
    _met: list[_Weights] = field(default_factory=list, init=False, repr=False)

    def __post_init__(self) -> None:
        whole_number(self.degree, "The degree of a Cloud")
        if self.points is not None:
            object.__setattr__(self, "points", tensor_checks.points(self.points).detach().clone())
            self._count(self.points)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_met": []}

    def _count(self, points: Tensor) -> int:
        monomials = comb(self.degree + points.shape[1], points.shape[1])
        count = 2 * monomials if self.neighbours is None else self.neighbours
        if not isinstance(count, int) or not monomials <= count <= len(points):
            raise InputError(
                f"Polynomials of degree {self.degree} in {points.shape[1]} variables have {monomials} coefficients, so "
                f"a derivative needs from {monomials} neighbours to all {len(points)} points; got {count!r}: take more "
                "points, a lower degree or other neighbours."
            )
        return count

    def weighted(self, x: Tensor) -> Callable[[Tensor, Axes], Tensor]:
        if x.is_meta:
            raise UnsupportedError("The meta device holds no places to compute weights of; use real points.")
        if self.points is not None and not same_points(x, self.points):
            raise refused(self, len(self.points))
        if len(x) < chunked_rows():
            raise InputError(
                "A slice of a batch is another cloud, with less accurate derivatives: take the batch whole, without a "
                "chunk (dudx train --chunk whole)."
            )
        for weights in self._met:
            if same_points(x, weights.points):
                return weights.applied
        weights = _Weights(x.detach().clone(), self.degree, self._count(x))
        self._met[:] = [weights, *self._met[: _KEPT - 1]]
        return weights.applied


class _Weights:
    """A cloud with each point's neighbours, and the weights of the derivatives that were asked for."""

    def __init__(self, points: Tensor, degree: int, count: int):
        self.points, self.degree = points, degree
        exact = points.to("cpu" if points.device.type == "mps" else points.device, torch.float64)
        lengths = exact.amax(0) - exact.amin(0)
        #: The extent along each axis: neighbours are chosen, and weights solved for, in multiples of it, as axes may
        #: have different units.
        self.lengths = torch.where(lengths > 0, lengths, torch.ones_like(lengths))
        exact = (exact - exact.amin(0)) / self.lengths
        self.places, distances = _nearest(exact, count)
        self.size = distances[:, -1:]
        if bool((self.size == 0).any()) or bool((distances[:, 1] == 0).any()):
            raise InputError(
                f"Point {int(distances[:, 1].argmin())} of the cloud is in it twice; give each point once."
            )
        self.around = (exact[self.places] - exact.unsqueeze(1)) / self.size.unsqueeze(2)  # (N, n, d), within a ball
        self.by_axes: dict[Axes, Tensor] = {}

    def applied(self, u: Tensor, axes: Axes) -> Tensor:
        """The derivative along the axes of values (N, m)."""
        if axes not in self.by_axes:
            self.by_axes[axes] = self._solved(axes).to(u.device)
        weights = self.by_axes[axes].to(u.dtype)
        return (weights.unsqueeze(2) * u[self.places.to(u.device)]).sum(1)

    def _solved(self, axes: Axes) -> Tensor:
        """The weights (N, n) of one partial derivative, cloud piece by cloud piece."""
        if len(axes) > self.degree:
            raise InputError(
                f"A derivative of order {len(axes)} needs polynomials of that degree at least; this Cloud has degree "
                f"{self.degree}: dudx.Cloud(points, degree={len(axes) + 2})."
            )
        n, d = self.around.shape[1:]
        powers = [p for p in itertools.product(range(self.degree + 1), repeat=d) if sum(p) <= self.degree]
        at_once = max(1, _AT_ONCE // (n + len(powers)) ** 2)
        pieces = [self._piece(part, axes, powers) for part in self.around.split(at_once)]
        weights = torch.cat([piece for piece, _ in pieces])
        missed = torch.cat([missed for _, missed in pieces])
        if not bool((missed <= _MISSED).all()):
            raise InputError(
                f"The neighbours of point {int(missed.nan_to_num(torch.inf).argmax())} lie in a special position, on a "
                "line or another curve, that leaves the derivative open: take a cloud that fills its domain, boundary "
                "and inside together, more neighbours or a lower degree."
            )
        return weights / (self.size ** len(axes) * self.lengths[list(axes)].prod())

    def _piece(self, around: Tensor, axes: Axes, powers: list[tuple[int, ...]]) -> tuple[Tensor, Tensor]:
        count, n, d = around.shape
        exponent = 2 * (len(axes) // 2) + 3  # smooth enough for the derivative to be continuous
        orders = tuple(axes.count(axis) for axis in range(d))
        monomials = torch.stack([_monomial(around, power) for power in powers], dim=2)
        target = torch.tensor(
            [float(factorials(orders)) if power == orders else 0.0 for power in powers],
            dtype=around.dtype,
            device=around.device,
        )
        system = around.new_zeros(count, n + len(powers), n + len(powers))
        system[:, :n, :n] = torch.cdist(around, around, compute_mode="donot_use_mm_for_euclid_dist") ** exponent
        system[:, :n, n:] = monomials
        system[:, n:, :n] = monomials.mT
        right = torch.cat([_spline_derivative(-around, orders, exponent), target.expand(count, -1)], dim=1)
        solution, info = torch.linalg.solve_ex(system, right)
        weights = solution[:, :n]
        missed = (torch.einsum("cnm,cn->cm", monomials, weights) - target).abs().amax(1)
        missed = missed / weights.abs().sum(1).clamp(min=1.0)
        return weights, torch.where(info == 0, missed, torch.inf).nan_to_num(torch.inf)


def _nearest(points: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The numbers and distances (N, count) of the nearest points of each, itself first."""
    found = [
        torch.cdist(part, points, compute_mode="donot_use_mm_for_euclid_dist").topk(count, dim=1, largest=False)
        for part in points.split(max(1, _AT_ONCE // len(points)))
    ]
    return torch.cat([one.indices for one in found]), torch.cat([one.values for one in found])


def _monomial(around: Tensor, powers: tuple[int, ...]) -> Tensor:
    product = torch.ones_like(around[..., 0])
    for axis, power in enumerate(powers):
        if power:
            product = product * around[..., axis] ** power
    return product


def _spline_derivative(y: Tensor, orders: tuple[int, ...], exponent: int) -> Tensor:
    """The partial derivative of |y|^exponent, a sum of terms y^powers |y|^p; at the origin it is zero."""
    terms: dict[tuple[tuple[int, ...], int], float] = {((0,) * len(orders), exponent): 1.0}
    for axis, order in enumerate(orders):
        for _ in range(order):
            after: dict[tuple[tuple[int, ...], int], float] = {}
            for (powers, p), c in terms.items():
                lower = (*powers[:axis], powers[axis] - 1, *powers[axis + 1 :])
                higher = (*powers[:axis], powers[axis] + 1, *powers[axis + 1 :])
                if powers[axis]:
                    after[lower, p] = after.get((lower, p), 0.0) + c * powers[axis]
                if p:
                    after[higher, p - 2] = after.get((higher, p - 2), 0.0) + c * p
            terms = after
    r = torch.linalg.vector_norm(y, dim=-1)
    away = torch.where(r > 0, r, torch.ones_like(r))
    total = torch.zeros_like(r)
    for (powers, p), c in terms.items():
        total = total + c * _monomial(y, powers) * away**p
    return torch.where(r > 0, total, torch.zeros_like(r))


def factorials(orders: tuple[int, ...]) -> int:
    """The product of the factorials."""
    product = 1
    for order in orders:
        product *= factorial(order)
    return product
