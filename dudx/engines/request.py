"""The request that reaches an engine: operators without tensors, and the vectors that they follow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from torch import Tensor

from dudx.backend import tensor_checks
from dudx.errors import InputError
from dudx.operators import Operator, Partial, in_common_slots


@dataclass(frozen=True, eq=False)
class Request:
    """Operators in the d variables of the points, once every axis and vector fits these.

    A plan depends on `operators` alone, which are hashable and hold no tensors; it gets the vectors when it runs.
    """

    operators: tuple[Operator, ...]
    #: The vectors (B, d) that `Directional` terms follow, by slot.
    vectors: tuple[Tensor, ...] = ()

    def __iter__(self) -> Iterator[Operator]:
        return iter(self.operators)

    @cached_property
    def orders(self) -> tuple[int, ...]:
        """The orders of the derivatives that occur in any of the operators, from the lowest; values have none."""
        return orders_of(self.operators)

    def of(self, operators: Sequence[Operator]) -> Request:
        """A request of other operators that share its slots."""
        directional = self.vectors and any(operator.directional for operator in operators)
        return Request(tuple(operators), self.vectors if directional else ())

    def at_rows(self, rows: int | slice | Tensor) -> Request:
        """The request at some of the points."""
        return Request(self.operators, tuple(vector[rows] for vector in self.vectors)) if self.vectors else self

    @property
    def with_vectors(self) -> list[Operator]:
        """The operators with their vectors, as a user writes them."""
        return [
            Operator(operator.terms, self.vectors) if operator.directional else operator for operator in self.operators
        ]


@lru_cache(maxsize=256)
def orders_of(operators: tuple[Operator, ...]) -> tuple[int, ...]:
    """The orders of the derivatives that occur in any of the operators, from the lowest; values have none."""
    return tuple(sorted({order for operator in operators for order in operator.orders if order}))


def request_of(operators: object, x: Tensor) -> Request:
    """Check operators as a user writes them against the points, and separate them from their vectors."""
    listed = [operators] if isinstance(operators, Operator) else operators
    if not isinstance(listed, Sequence) or not all(isinstance(o, Operator) for o in listed):
        raise InputError(f"Operators must be a list such as [D(0), Laplacian()]; got {operators!r}.")
    if not listed:
        raise InputError("The list of operators is empty; ask for at least one, for example D().")
    apart, vectors = in_common_slots(listed)
    for vector in vectors:
        check_vector(vector, x)
    return Request(_in_variables(apart, x.shape[1]), vectors)


@lru_cache(maxsize=256)
def _in_variables(operators: tuple[Operator, ...], dimensions: int) -> tuple[Operator, ...]:
    for operator in operators:
        for term in operator.terms:
            if isinstance(term, Partial) and term.axes and term.axes[-1] >= dimensions:
                raise InputError(
                    f"Axis {term.axes[-1]} is out of range: the points have {dimensions} columns, "
                    f"0 to {dimensions - 1}."
                )
    return tuple(operator.expanded(dimensions) for operator in operators)


def check_vector(v: Tensor, x: Tensor) -> None:
    """Refuse vectors that do not belong to the points."""
    if v.shape != x.shape:
        raise InputError(
            f"The direction of Along must have the shape of the points, {tuple(x.shape)}; got {tuple(v.shape)}."
        )
    if v.dtype != x.dtype or v.device != x.device:
        raise InputError(
            f"The direction of Along is {v.dtype} on {v.device} and the points are {x.dtype} on {x.device}; "
            "use v.to(x)."
        )
    tensor_checks.finite_on_schedule(v, "direction of Along")
