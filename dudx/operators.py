"""What to compute: linear differential operators with constant coefficients.

`D(0, 0)`, `Laplacian()` and `Along(v)` are operators; sums, differences and multiples of operators are
operators, and `A @ B` applies B and then A. An operator is a value: immutable, hashable, free of any idea of
how it will be computed.

The terms of an operator hold no tensors. A derivative along vectors names them by a slot, and the operator keeps the
tensors beside its terms; `in_common_slots` takes them apart.
"""

from __future__ import annotations

import itertools
import numbers
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, cast

import torch
from torch import Tensor

from dudx import errors
from dudx.backend import tensor_checks
from dudx.errors import InputError, is_whole


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


@dataclass(frozen=True)
class Directional:
    """The derivative of the given order along a vector at each point: the tensor (B, d) in a slot of `vectors`."""

    slot: int
    order: int
    laplacians: ClassVar[int] = 0

    def __repr__(self) -> str:
        return f"Along(v, order={self.order})"


Term = Partial | Directional


class Operator:
    """A linear combination of partial and directional derivatives.

    Args:
        terms: the derivatives with their coefficients.
        vectors: the tensors (B, d) that directional terms follow, by slot. It is empty where a request keeps them for
            all of its operators.

    Example:
        >>> heat = dudx.D(1) - 0.1 * dudx.D(0, 0)
        >>> isinstance(heat, dudx.operators.Operator), sorted(heat.orders)
        (True, [1, 2])
    """

    __slots__ = ("_hash", "terms", "vectors")
    # Lets numpy's scalars stand on the left of a product: they would otherwise try to make an array of us.
    __array_ufunc__ = None

    terms: Mapping[Term, float]
    vectors: tuple[Tensor, ...]
    _hash: int | None

    def __init__(self, terms: Mapping[Term, float], vectors: tuple[Tensor, ...] = ()):
        kept = {term: coefficient for term, coefficient in terms.items() if coefficient != 0}
        object.__setattr__(self, "terms", MappingProxyType(kept))
        object.__setattr__(self, "vectors", vectors)
        object.__setattr__(self, "_hash", None)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("an operator cannot be changed; build a new one")

    def __reduce__(self) -> tuple:
        return Operator, (dict(self.terms), self.vectors)

    @property
    def orders(self) -> frozenset[int]:
        """The orders of the derivatives that occur."""
        return frozenset(term.order for term in self.terms)

    @property
    def directional(self) -> bool:
        """True where a term is a derivative along vectors."""
        return any(isinstance(term, Directional) for term in self.terms)

    def expanded(self, dimensions: int) -> Operator:
        """The operator in `dimensions` variables with every open Laplacian written out."""
        for term in self.terms:
            if term.laplacians:
                return self._expanded(dimensions)
        return self

    def _expanded(self, dimensions: int) -> Operator:
        total: dict[Term, float] = {}
        for term, coefficient in self.terms.items():
            for repeated in itertools.product(range(dimensions), repeat=term.laplacians):
                written_out: Term = term
                if isinstance(term, Partial):
                    axes = term.axes + tuple(axis for axis in repeated for _ in range(2))
                    written_out = Partial(tuple(sorted(axes)))
                total[written_out] = total.get(written_out, 0.0) + coefficient
        return Operator(total, self.vectors)

    def __add__(self, other: object) -> Operator:
        if not isinstance(other, Operator):
            return NotImplemented
        if self.vectors or other.vectors:
            (one, another), vectors = in_common_slots((self, other))
            return Operator((one + another).terms, vectors)
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
        terms = {term: coefficient * float(factor) for term, coefficient in self.terms.items()}
        return Operator(terms, self.vectors)

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
        if not isinstance(other, Operator):
            return False
        if self.vectors or other.vectors:
            (one, another), _ = in_common_slots((self, other))
            return one.terms == another.terms
        return self.terms == other.terms

    def __hash__(self) -> int:
        # Computed once: in many variables there are many terms, and plans are looked up by operator.
        if self._hash is None:
            terms: Any = self.terms.items()
            if self.vectors:  # equal operators may number their slots in another order
                terms = [(t.order if isinstance(t, Directional) else t, c) for t, c in terms]
            object.__setattr__(self, "_hash", hash(frozenset(terms)))
        return cast(int, self._hash)

    def __repr__(self) -> str:
        if not self.terms:
            return "0 * D()"
        return " + ".join(repr(t) if c == 1 else f"{c:g} * {t!r}" for t, c in self.terms.items())


class Slots:
    """Slots for the vectors of several operators: a tensor has one slot wherever it occurs."""

    def __init__(self) -> None:
        self.vectors: list[Tensor] = []
        self._numbers: dict[int, int] = {}

    def take(self, operator: Operator) -> Operator:
        """The operator in these slots, without its tensors, which are added to `vectors`."""
        if not operator.vectors:
            return operator
        terms: dict[Term, float] = {}
        for term, coefficient in operator.terms.items():
            if isinstance(term, Directional):
                vector = operator.vectors[term.slot]
                slot = self._numbers.setdefault(id(vector), len(self.vectors))
                if slot == len(self.vectors):
                    self.vectors.append(vector)
                term = Directional(slot, term.order)
            terms[term] = terms.get(term, 0.0) + coefficient
        return Operator(terms)


def in_common_slots(operators: Sequence[Operator]) -> tuple[tuple[Operator, ...], tuple[Tensor, ...]]:
    """Take operators apart: hashable operators without tensors that share slots, and the tensors by slot."""
    slots = Slots()
    return tuple(map(slots.take, operators)), tuple(slots.vectors)


def D(*axes: int) -> Operator:
    """The partial derivative along the given axes: `D()` is the value, `D(0, 1)` is ∂²/∂x₀∂x₁.

    Example:
        >>> x = torch.rand(10, 2, dtype=torch.float64)
        >>> value, mixed = dudx.evaluate(lambda x: x[:, :1] ** 2 * x[:, 1:], x, [dudx.D(), dudx.D(0, 1)], dudx.AD())
        >>> torch.allclose(mixed, 2 * x[:, :1])
        True
    """
    for axis in axes:
        if not is_whole(axis, 0):
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
    return Operator({Directional(0, errors.whole_number(order, "The order of Along")): 1.0}, (v,))


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
    values, axes = torch.linalg.eigh(matrix)
    terms: dict[Term, float] = {}
    vectors: list[Tensor] = []
    for sign in (1.0, -1.0):
        size = (sign * values).clamp(min=0).sqrt()
        for k in range(matrix.shape[-1]):
            if bool(size[:, k].any()):
                terms[Directional(len(vectors), 2)] = sign
                vectors.append(size[:, k : k + 1] * axes[:, :, k])
    return Operator(terms, tuple(vectors))
