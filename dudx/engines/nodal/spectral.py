"""Differentiation of the polynomial through the values at the nodes of a box."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dudx import errors
from dudx.engines.nodal.nodal_engine import Axes, Nodal, refused, same_points
from dudx.errors import InputError


@dataclass(frozen=True, eq=False)
class Spectral(Nodal):
    """Derivatives of the polynomial through the values at the nodes of a box, dense matrices along each axis.

    For smooth functions the error falls exponentially with the degree. `points` are the nodes, boundary included, at
    which a residual has to be evaluated.

    Args:
        box: the lowest and the highest corner, `((0, 0), (1, 2))`, or a domain that is a box.
        degree: that of the polynomial along each axis, or one for each.
        nodes: "chebyshev" or "legendre", both with the ends.

    Example:
        >>> engine = dudx.Spectral(((0.0,), (1.0,)), degree=16)
        >>> slope = dudx.evaluate(torch.sin, engine.points, dudx.D(0), engine)
        >>> torch.allclose(slope, torch.cos(engine.points), atol=1e-12)
        True
    """

    box: Any
    degree: int | Sequence[int]
    nodes: str = "chebyshev"

    def __post_init__(self) -> None:
        errors.one_of(self.nodes, ("chebyshev", "legendre"), "nodes")
        low, high = _corners(self.box)
        degrees = (self.degree,) * len(low) if isinstance(self.degree, int) else tuple(self.degree)
        whole = all(isinstance(degree, int) and not isinstance(degree, bool) and degree >= 1 for degree in degrees)
        if len(degrees) != len(low) or not whole:
            raise InputError(
                f"The degree is a whole number, 1 or more, or one for each of the {len(low)} axes; got {self.degree!r}."
            )
        object.__setattr__(self, "box", (low, high))
        object.__setattr__(self, "degree", degrees)

    @property
    def points(self) -> Tensor:
        """The nodes (N, d) in double precision; the last axis changes first."""
        columns = [
            low + (high - low) * (1 + torch.from_numpy(_nodes(degree, self.nodes))) / 2
            for low, high, degree in zip(*self.box, self._degrees, strict=True)
        ]
        return torch.stack([column.flatten() for column in torch.meshgrid(*columns, indexing="ij")], dim=1)

    @property
    def _degrees(self) -> tuple[int, ...]:
        assert isinstance(self.degree, tuple)
        return self.degree

    def weighted(self, x: Tensor) -> Callable[[Tensor, Axes], Tensor]:
        points = self.points
        if x.shape != points.shape or (not x.is_meta and not same_points(x, points)):
            raise refused(self, len(points))
        shape = [degree + 1 for degree in self._degrees]

        def partial(u: Tensor, axes: Axes) -> Tensor:
            table = u.view(*shape, -1)
            for axis in sorted(set(axes)):
                matrix = torch.from_numpy(_matrix(shape[axis] - 1, self.nodes, axes.count(axis)))
                length = self.box[1][axis] - self.box[0][axis]
                scaled = (matrix * (2 / length) ** axes.count(axis)).to(u)
                moved = table.movedim(axis, 0)
                table = (scaled @ moved.reshape(shape[axis], -1)).view(moved.shape).movedim(0, axis)
            return table.reshape(u.shape)

        return partial


def _corners(box: Any) -> tuple[tuple[float, ...], tuple[float, ...]]:
    corners = getattr(box, "bounds", box)
    try:
        low, high = (tuple(float(number) for number in corner) for corner in corners)
    except (TypeError, ValueError) as error:
        raise InputError(f"The box has a lowest and a highest corner, ((0, 0), (1, 2)); got {box!r}.") from error
    if len(low) != len(high) or not low or not all(a < b for a, b in zip(low, high, strict=True)):
        raise InputError(f"The lowest corner of the box must lie below the highest along each axis; got {low}, {high}.")
    return low, high


@lru_cache(maxsize=64)
def _nodes(degree: int, kind: str) -> np.ndarray:
    """From -1 to 1, with both ends."""
    if kind == "chebyshev":
        nodes = -np.cos(np.pi * np.arange(degree + 1) / degree)
    else:
        inner = np.polynomial.legendre.Legendre.basis(degree).deriv().roots() if degree > 1 else np.empty(0)
        nodes = np.concatenate([[-1.0], np.sort(np.real(inner)), [1.0]])
    return (nodes - nodes[::-1]) / 2  # symmetric to the last digit


@lru_cache(maxsize=64)
def _matrix(degree: int, kind: str, order: int) -> np.ndarray:
    """The derivative on [-1, 1] as a matrix, by barycentric weights; rows sum to zero, as constants have none."""
    x = _nodes(degree, kind)
    apart = x[:, None] - x[None, :] + np.eye(degree + 1)
    weights = 1 / np.prod(2 * apart, axis=1)  # of the size of 1, as differences on [-1, 1] are of 1/2
    first = (weights[None, :] / weights[:, None]) / apart
    np.fill_diagonal(first, 0.0)
    np.fill_diagonal(first, -first.sum(axis=1))
    matrix = np.linalg.matrix_power(first, order)
    np.fill_diagonal(matrix, 0.0)
    np.fill_diagonal(matrix, -matrix.sum(axis=1))
    return matrix
