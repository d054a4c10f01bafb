"""What to compute: linear differential operators with constant coefficients.

`D(0, 0)`, `Laplacian()` and `Along(v)` are operators; sums, differences and multiples of operators are
operators, and `A @ B` applies B and then A. An operator is a value: immutable, hashable, free of any idea of
how it will be computed.
"""

from __future__ import annotations

import itertools
import numbers
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any, cast

import torch
from torch import Generator, Tensor

from dudx import errors
from dudx.backend import tensor_checks
from dudx.errors import InputError


@dataclass(frozen=True)
class Partial:
    """A partial derivative; `laplacians` counts Laplacians over all axes, expanded once d is known."""

    axes: tuple[int, ...] = ()
    laplacians: int = 0

    @property
    def order(self) -> int:
        return len(self.axes) + 2 * self.laplacians

    def __repr__(self) -> str:
        parts = ["Laplacian()"] * self.laplacians
        if self.axes or not parts:
            parts.append(f"D({', '.join(map(str, self.axes))})")
        return " @ ".join(parts)


@dataclass(frozen=True, eq=False)
class Directional:
    """The derivative of the given order along a vector at each point; two are equal if they share the tensor."""

    direction: Tensor
    order: int

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Directional) and other.direction is self.direction and other.order == self.order

    def __hash__(self) -> int:
        return hash((id(self.direction), self.order))

    def __repr__(self) -> str:
        return f"Along(v, order={self.order})"


Term = Partial | Directional


class Operator:
    """A linear combination of partial and directional derivatives.

    Example:
        >>> heat = dudx.D(1) - 0.1 * dudx.D(0, 0)
        >>> isinstance(heat, dudx.operators.Operator), sorted(heat.orders)
        (True, [1, 2])
    """

    __slots__ = ("_hash", "holds_vectors", "terms")
    # Lets numpy's scalars stand on the left of a product: they would otherwise try to make an array of us.
    __array_ufunc__ = None

    terms: Mapping[Term, float]
    #: Whether there is a direction among the terms, and so a tensor that a cache would keep alive.
    holds_vectors: bool
    _hash: int | None

    def __init__(self, terms: Mapping[Term, float]):
        kept = {term: coefficient for term, coefficient in terms.items() if coefficient != 0}
        object.__setattr__(self, "terms", MappingProxyType(kept))
        object.__setattr__(self, "holds_vectors", any(isinstance(term, Directional) for term in kept))
        object.__setattr__(self, "_hash", None)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("an operator cannot be changed; build a new one")

    def __reduce__(self) -> tuple:
        return Operator, (dict(self.terms),)

    @property
    def orders(self) -> frozenset[int]:
        """The orders of the derivatives that occur."""
        return frozenset(term.order for term in self.terms)

    def expanded(self, dimensions: int) -> Operator:
        """The same operator in `dimensions` variables with every open Laplacian written out."""
        uncached = self.holds_vectors or torch.compiler.is_compiling()  # which would see through the cache, and say so
        return (_expanded.__wrapped__ if uncached else _expanded)(self, dimensions)

    def __add__(self, other: object) -> Operator:
        if not isinstance(other, Operator):
            return NotImplemented
        total = dict(self.terms)
        for term, coefficient in other.terms.items():
            total[term] = total.get(term, 0.0) + coefficient
        return Operator(total)

    def __sub__(self, other: object) -> Operator:
        return self + (-other) if isinstance(other, Operator) else NotImplemented

    def __neg__(self) -> Operator:
        return self * -1

    def __mul__(self, factor: object) -> Operator:
        if not isinstance(factor, numbers.Real):
            return NotImplemented
        return Operator({term: coefficient * float(factor) for term, coefficient in self.terms.items()})

    __rmul__ = __mul__

    def __truediv__(self, divisor: object) -> Operator:
        return self * (1 / float(divisor)) if isinstance(divisor, numbers.Real) else NotImplemented

    def __matmul__(self, inner: object) -> Operator:
        if not isinstance(inner, Operator):
            return NotImplemented
        total: dict[Term, float] = {}
        for (outer, a), (term, b) in itertools.product(self.terms.items(), inner.terms.items()):
            if isinstance(outer, Directional) or isinstance(term, Directional):
                raise InputError("Along does not compose with other operators; Along(v, order=n) is order n along v.")
            both = Partial(tuple(sorted(outer.axes + term.axes)), outer.laplacians + term.laplacians)
            total[both] = total.get(both, 0.0) + a * b
        return Operator(total)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Operator) and self.terms == other.terms

    def __hash__(self) -> int:
        # Computed once: in many variables there are many terms, and plans are looked up by operator.
        if self._hash is None:
            object.__setattr__(self, "_hash", hash(frozenset(self.terms.items())))
        return cast(int, self._hash)

    def __repr__(self) -> str:
        if not self.terms:
            return "0 * D()"
        return " + ".join(repr(t) if c == 1 else f"{c:g} * {t!r}" for t, c in self.terms.items())


@lru_cache(maxsize=256)
def _expanded(operator: Operator, dimensions: int) -> Operator:
    total: dict[Term, float] = {}
    for term, coefficient in operator.terms.items():
        if isinstance(term, Directional):
            total[term] = total.get(term, 0.0) + coefficient
            continue
        for repeated in itertools.product(range(dimensions), repeat=term.laplacians):
            axes = term.axes + tuple(axis for axis in repeated for _ in range(2))
            partial = Partial(tuple(sorted(axes)))
            total[partial] = total.get(partial, 0.0) + coefficient
    return Operator(total)


def D(*axes: int) -> Operator:
    """The partial derivative along the given axes: `D()` is the value, `D(0, 1)` is ∂²/∂x₀∂x₁.

    Example:
        >>> x = torch.rand(10, 2, dtype=torch.float64)
        >>> value, mixed = dudx.evaluate(lambda x: x[:, :1] ** 2 * x[:, 1:], x, [dudx.D(), dudx.D(0, 1)], dudx.AD())
        >>> torch.allclose(mixed, 2 * x[:, :1])
        True
    """
    for axis in axes:
        if isinstance(axis, bool) or not isinstance(axis, numbers.Integral) or axis < 0:
            raise InputError(f"D takes the numbers of input columns, 0 or more; got {axis!r}.")
    return Operator({Partial(tuple(sorted(int(axis) for axis in axes))): 1.0})


def Laplacian(axes: Iterable[int] | None = None) -> Operator:
    """The sum of the second derivatives along `axes`, or along every input when `axes` is None.

    Example:
        >>> x = torch.rand(10, 2, dtype=torch.float64)
        >>> both = dudx.evaluate(lambda x: (x**2).sum(1, keepdim=True), x, dudx.Laplacian(), dudx.Taylor())
        >>> torch.allclose(both, torch.full_like(both, 4.0))
        True
    """
    if axes is None:
        return Operator({Partial((), 1): 1.0})
    if not isinstance(axes, Iterable):
        raise InputError(f"Laplacian takes a list of axes such as (0, 1), or none for all of them; got {axes!r}.")
    axes = list(axes)
    terms = {term: 1.0 for axis in axes for term in D(axis, axis).terms}
    if not terms or len(terms) != len(axes):
        raise InputError(f"Laplacian takes one or more different axes; got {axes!r}.")
    return Operator(terms)


def Along(v: Tensor, order: int = 1) -> Operator:
    """The derivative of the given order along `v`, a (B, d) tensor with a vector for each point.

    The vector is held constant and need not have unit length: order n scales with the n-th power of its length.

    Example:
        >>> x, v = torch.rand(2, 10, 2, dtype=torch.float64)
        >>> slope = dudx.evaluate(lambda x: 3 * x[:, :1] + x[:, 1:], x, dudx.Along(v), dudx.AD())
        >>> torch.allclose(slope, 3 * v[:, :1] + v[:, 1:])
        True
    """
    if not isinstance(v, Tensor) or v.ndim != 2 or not v.is_floating_point():
        got = f"a tensor of shape {tuple(v.shape)} and {v.dtype}" if isinstance(v, Tensor) else type(v).__name__
        raise InputError(f"Along takes a floating-point tensor of shape (B, d), a vector per point; got {got}.")
    return Operator({Directional(v, errors.whole_number(order, "The order of Along")): 1.0})


def Second(a: Any) -> Operator:
    """The sum of a_ij ∂²/∂x_i∂x_j, for a symmetric matrix (d, d), or (B, d, d) with one for each point.

    A matrix for each point is taken along its eigenvectors: d second derivatives instead of d (d + 1) / 2. It is held
    constant, as directions are.

    Example:
        >>> x = torch.rand(10, 2, dtype=torch.float64)
        >>> value = dudx.evaluate(lambda x: x[:, :1] * x[:, 1:], x, dudx.Second([[1, 0.5], [0.5, 3]]), dudx.Taylor())
        >>> torch.allclose(value, torch.ones_like(value))
        True
    """
    matrix = a if isinstance(a, Tensor) else torch.as_tensor(a, dtype=torch.float64, device="cpu")
    if matrix.ndim not in (2, 3) or matrix.shape[-1] != matrix.shape[-2] or not matrix.is_floating_point():
        raise InputError(f"Second takes a symmetric matrix (d, d), or (B, d, d); got shape {tuple(matrix.shape)}.")
    if matrix.requires_grad:
        raise InputError("Second holds its matrix constant; write out the sum for one that is learned, a * u.xx + …")
    tensor_checks.finite(matrix.flatten(1) if matrix.ndim == 3 else matrix, "matrix of Second")
    if not torch.allclose(matrix, matrix.mT, rtol=1e-5, atol=1e-7 * float(matrix.abs().max())):
        raise InputError("The matrix of Second must be symmetric; use (A + A.mT) / 2.")
    if matrix.ndim == 2:
        entries = matrix.tolist()
        pairs = itertools.product(range(len(entries)), repeat=2)
        return sum((entries[i][j] * D(i, j) for i, j in pairs), Operator({}))
    values, vectors = torch.linalg.eigh(matrix)
    total = Operator({})
    for sign in (1, -1):
        size = (sign * values).clamp(min=0).sqrt()
        for k in range(matrix.shape[-1]):
            if bool(size[:, k].any()):
                total = total + sign * Along(size[:, k : k + 1] * vectors[:, :, k], order=2)
    return total


def at_rows(operators: Sequence[Operator], rows: int | slice | Tensor) -> tuple[Operator, ...]:
    """The operators at some samples: their directions cut down to the vectors there, and still shared."""
    terms = (term for operator in operators for term in operator.terms)
    here = {id(t.direction): t.direction[rows] for t in terms if isinstance(t, Directional)}
    return tuple(
        Operator(
            {
                Directional(here[id(term.direction)], term.order)
                if isinstance(term, Directional)
                else term: coefficient
                for term, coefficient in operator.terms.items()
            }
        )
        for operator in operators
    )


def orders_of(operators: tuple[Operator, ...]) -> tuple[int, ...]:
    """The orders of the derivatives that occur in any of the operators, from the lowest."""
    for operator in operators:
        if operator.holds_vectors:
            return _orders_of.__wrapped__(operators)
    return _orders_of(operators)


@lru_cache(maxsize=256)
def _orders_of(operators: tuple[Operator, ...]) -> tuple[int, ...]:
    return tuple(sorted({order for operator in operators for order in operator.orders if order}))


def fitting(requested: object, x: Tensor) -> list[Operator]:
    """Operators as they are asked for, in the d variables of x, once every axis and direction fits the points."""
    listed = [requested] if isinstance(requested, Operator) else requested
    if not isinstance(listed, Sequence) or not all(isinstance(o, Operator) for o in listed):
        raise InputError(f"Operators must be a list such as [D(0), Laplacian()]; got {requested!r}.")
    if not listed:
        raise InputError("The list of operators is empty; ask for at least one, for example D().")
    for term in (term for operator in listed for term in operator.terms):
        if isinstance(term, Directional):
            _check_direction(term.direction, x)
        elif term.axes and term.axes[-1] >= x.shape[1]:
            raise InputError(
                f"Axis {term.axes[-1]} is out of range: the points have {x.shape[1]} columns, 0 to {x.shape[1] - 1}."
            )
    return [operator.expanded(x.shape[1]) for operator in listed]


def _check_direction(v: Tensor, x: Tensor) -> None:
    if v.shape != x.shape:
        raise InputError(
            f"The direction of Along must have the shape of the points, {tuple(x.shape)}; got {tuple(v.shape)}."
        )
    if v.dtype != x.dtype or v.device != x.device:
        raise InputError(
            f"The direction of Along is {v.dtype} on {v.device} and the points are {x.dtype} on {x.device}; "
            "use v.to(x)."
        )
    tensor_checks.finite(v, "direction of Along")


def random_laplacian(x: Tensor, samples: int = 1, kind: str = "axes", generator: Generator | None = None) -> Operator:
    """An operator whose expected value is the Laplacian: the mean of second derivatives along random vectors.

    Each point has vectors of its own. With E[v vᵀ] = 1 the second derivative along v is the Laplacian on average.

    Args:
        x: the points at which it will be evaluated, (B, d).
        samples: how many vectors a point has.
        kind: "axes" draws different axes, scaled by √d: no variance where all ∂²u/∂x_k² are equal, none at all for
            samples = d. "dense" draws vectors of ±1 (Hutchinson): no variance where the Hessian is diagonal.
        generator: makes the draws repeatable.

    Example:
        >>> x = torch.rand(10, 100)
        >>> estimate = dudx.random_laplacian(x, samples=8)
        >>> value = dudx.evaluate(lambda x: (x**2).sum(1, keepdim=True), x, estimate, dudx.Taylor())
        >>> torch.allclose(value, torch.full_like(value, 200.0))  # exact here: the same along every axis
        True
    """
    x = tensor_checks.points(x)
    errors.one_of(kind, ("axes", "dense"), "kind")
    count, dimensions = x.shape
    errors.whole_number(samples, "samples")
    if kind == "axes" and samples > dimensions:
        raise InputError(f"There are only {dimensions} different axes to draw; got samples = {samples}.")
    device = x.device if generator is None else generator.device
    if kind == "dense":
        signs = torch.randint(0, 2, (samples, count, dimensions), generator=generator, device=device)
        vectors = (2 * signs - 1).to(x)
    else:
        # The largest of independent random numbers stand at random places, each without repetition.
        # A seed that the points were drawn with too gives the same numbers: moved, they are those of other coordinates.
        keys = torch.rand(count, dimensions, generator=generator, device=device).roll((1, 1), (0, 1))
        chosen = keys.topk(samples, dim=1).indices.T.to(x.device)
        vectors = torch.nn.functional.one_hot(chosen, dimensions).to(x) * dimensions**0.5
    total = Operator({})
    for vector in vectors:
        total = total + Along(vector, order=2) / samples
    return total
