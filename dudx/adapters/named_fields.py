"""Named fields, which an equation of PINA receives as points and outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from dudx.backend.containers import mapped
from dudx.errors import InputError
from dudx.residual.field import Field, tensors_of


class NamedFields:
    """Columns side by side, each a field; arithmetic acts per column and keeps fields symbolic."""

    __array_ufunc__ = None
    ndim = 2

    def __init__(self, columns: Sequence[Any], labels: Sequence[str]):
        if len(columns) != len(labels):
            raise InputError(f"there are {len(columns)} columns and {len(labels)} labels")
        self.columns, self.labels = list(columns), list(labels)

    @property
    def shape(self) -> tuple[int, int]:
        # Asking the field itself would request its values.
        return self.columns[0]._values.shape[0], len(self.columns)

    @property
    def device(self) -> torch.device:
        return self.columns[0]._values.like.device

    @property
    def tensor(self) -> Any:
        """The columns without names (PINA's attribute `tensor`); a single column is a field."""
        return self.columns[0] if len(self.columns) == 1 else self

    def extract(self, labels: str | Sequence[str]) -> NamedFields:
        """Select columns by name."""
        names = [labels] if isinstance(labels, str) else list(labels)
        return NamedFields([self.columns[self.labels.index(name)] for name in names], names)

    def values(self) -> Tensor:
        """All columns as a tensor of computed values."""
        return torch.cat([tensors_of(column) for column in self.columns], dim=1)

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str) or (isinstance(key, list) and all(isinstance(name, str) for name in key)):
            return self.extract(key)
        return self.values()[key]

    def __len__(self) -> int:
        return self.shape[0]

    def __bool__(self) -> bool:
        raise InputError("it must not branch on values")

    @classmethod
    def __torch_function__(cls, function: Callable, types: object, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        if (
            function is torch.cat
            and kwargs in ({"dim": -1}, {"dim": 1})
            and all(isinstance(a, NamedFields) for a in args[0])
        ):
            return _beside(args[0])
        given, named = _fields(args), _fields(kwargs)
        for value in given:
            if isinstance(value, Field):  # asked directly, since torch.compile cannot follow one such method in another
                return value._apply(function, *given, **named)
        return function(*given, **named)

    def _each(self, function: Callable[..., Any], *others: Any) -> NamedFields:
        """Apply a function to each column and the corresponding columns of the others."""
        several = [_columns(other, len(self.columns)) for other in others]
        return NamedFields([function(*together) for together in zip(self.columns, *several, strict=True)], self.labels)

    def __add__(self, other: Any) -> NamedFields:
        return self._each(lambda a, b: a + b, other)

    def __radd__(self, other: Any) -> NamedFields:
        return self._each(lambda a, b: b + a, other)

    def __sub__(self, other: Any) -> NamedFields:
        return self._each(lambda a, b: a - b, other)

    def __rsub__(self, other: Any) -> NamedFields:
        return self._each(lambda a, b: b - a, other)

    def __mul__(self, other: Any) -> NamedFields:
        return self._each(lambda a, b: a * b, other)

    def __rmul__(self, other: Any) -> NamedFields:
        return self._each(lambda a, b: b * a, other)

    def __truediv__(self, other: Any) -> NamedFields:
        return self._each(lambda a, b: a / b, other)

    def __rtruediv__(self, other: Any) -> NamedFields:
        return self._each(lambda a, b: b / a, other)

    def __pow__(self, other: Any) -> NamedFields:
        return self._each(lambda a, b: a**b, other)

    def __neg__(self) -> NamedFields:
        return self._each(lambda a: -a)


def _columns(other: Any, count: int) -> list[Any]:
    """The values that correspond to each of `count` columns."""
    if isinstance(other, NamedFields):
        return other.columns * count if len(other.columns) == 1 else other.columns
    if isinstance(other, Tensor) and other.ndim == 2 and other.shape[1] > 1:
        return [other[:, i : i + 1] for i in range(other.shape[1])]
    return [other] * count


def _beside(parts: Sequence[NamedFields]) -> NamedFields:
    return NamedFields(
        [column for part in parts for column in part.columns], [label for part in parts for label in part.labels]
    )


def _fields(given: Any) -> Any:
    """Convert arguments of torch functions: a single column to its field, several columns to a tensor."""

    def plain(leaf: Any) -> Any:
        if not isinstance(leaf, NamedFields):
            return leaf
        return leaf.columns[0] if len(leaf.columns) == 1 else leaf.values()

    return mapped(given, plain)


def columns_of(found: Any) -> tuple[Any, ...]:
    """Split the return value of an equation into a tuple of columns."""
    if isinstance(found, NamedFields):
        return tuple(found.columns)
    if isinstance(found, Field):
        if not isinstance(found._computed, Tensor) or found._computed.shape[1] == 1:
            return (found,)
        found = found._tensor()
    return tuple(found[:, i : i + 1] for i in range(found.shape[1]))
