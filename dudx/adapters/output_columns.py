"""Fields side by side, in place of the matrix of a network's outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from dudx.backend.containers import mapped
from dudx.errors import InputError
from dudx.residual.field import Field, tensors_of


class FieldColumns:
    """Fields that stay fields when columns are taken, `y[:, 0:1]`, and become a tensor in any other use."""

    __array_ufunc__ = None

    def __init__(self, fields: Sequence[Field]):
        self.fields = list(fields)

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, tuple) and len(key) == 2 and isinstance(key[0], slice) and key[0] == slice(None):
            if isinstance(key[1], slice):
                return joined_fields(self.fields[key[1]])
            if isinstance(key[1], int):
                return self.fields[key[1]][:, 0]
        return self._tensor()[key]

    def _tensor(self) -> Tensor:
        return torch.cat([field._tensor() for field in self.fields], dim=1)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not hasattr(Tensor, name):
            raise AttributeError(name)
        return getattr(self._tensor(), name)

    def __len__(self) -> int:
        return len(self._tensor())

    def __bool__(self) -> bool:
        raise InputError("A residual cannot branch on the values of outputs; use torch.where instead of if.")

    @classmethod
    def __torch_function__(cls, function: Callable, types: object, args: tuple = (), kwargs: dict | None = None) -> Any:
        return function(*_tensors(args), **_tensors(kwargs or {}))

    def __add__(self, other: object) -> Any:
        return torch.add(self._tensor(), _tensors(other))

    def __sub__(self, other: object) -> Any:
        return torch.sub(self._tensor(), _tensors(other))

    def __rsub__(self, other: object) -> Any:
        return -self._tensor() + _tensors(other)

    def __mul__(self, other: object) -> Any:
        return torch.mul(self._tensor(), _tensors(other))

    def __truediv__(self, other: object) -> Any:
        return torch.div(self._tensor(), _tensors(other))

    def __rtruediv__(self, other: object) -> Any:
        return _tensors(other) / self._tensor()

    def __pow__(self, other: object) -> Any:
        return torch.pow(self._tensor(), _tensors(other))

    def __neg__(self) -> Any:
        return -self._tensor()

    __radd__, __rmul__ = __add__, __mul__


def joined_fields(fields: Sequence[Field]) -> Field | FieldColumns:
    """Join fields: one field is returned as it is, several as `FieldColumns`."""
    return fields[0] if len(fields) == 1 else FieldColumns(fields)


def fields_of(outputs: Field | FieldColumns) -> list[Field]:
    """The list of fields in a field or in columns."""
    return [outputs] if isinstance(outputs, Field) else outputs.fields


def _tensors(value: Any) -> Any:
    return mapped(value, lambda leaf: leaf._tensor() if isinstance(leaf, FieldColumns) else tensors_of(leaf))
