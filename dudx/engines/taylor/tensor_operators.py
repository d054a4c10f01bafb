"""Python's operators for a class that stands in for a tensor: each calls the torch function of the same meaning."""

from __future__ import annotations

import numbers
from abc import abstractmethod
from typing import Any, Self

import torch
from torch import Tensor
from torch.overrides import handle_torch_function

from dudx.backend.active_modes import modes_active
from dudx.engines.taylor.rule_table import RULES


def _called(function: Any, jet: Any, *others: Any) -> Any:
    """Apply a rule directly; through torch's dispatch if a mode is active, so that the mode sees this call only."""
    if not torch.compiler.is_compiling() and modes_active():
        return handle_torch_function(function, (jet,), jet, *others)
    return RULES[function](jet, *others)


class TensorOperators:
    """Operators of a tensor. Operators in place replace the content of the object."""

    @abstractmethod
    def become(self, content: Any) -> Self:
        """Replace the content of this object."""

    def __add__(self, other: Any) -> Any:
        return _called(torch.add, self, other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return _called(torch.sub, self, other)

    def __rsub__(self, other: Any) -> Any:
        return _called(Tensor.__rsub__, self, other)

    def __neg__(self) -> Any:
        return _called(torch.neg, self)

    def __pos__(self) -> Self:
        return self

    def __mul__(self, other: Any) -> Any:
        return _called(torch.mul, self, other)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Any:
        return _called(torch.div, self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return _called(Tensor.__rtruediv__, self, other)

    def __pow__(self, other: Any) -> Any:
        return _called(torch.pow, self, other)

    def __rpow__(self, other: Any) -> Any:
        return _called(Tensor.__rpow__, self, other)

    def __mod__(self, other: Any) -> Any:
        return _called(torch.remainder, self, other)

    def __rmod__(self, other: Any) -> Any:
        return _called(Tensor.__rmod__, self, other)

    def __floordiv__(self, other: Any) -> Any:
        return _called(torch.floor_divide, self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return _called(Tensor.__rfloordiv__, self, other)

    def __matmul__(self, other: Any) -> Any:
        return _called(torch.matmul, self, other)

    def __rmatmul__(self, other: Any) -> Any:
        return _called(Tensor.__rmatmul__, self, other)

    def __abs__(self) -> Any:
        return _called(torch.abs, self)

    def __iadd__(self, other: Any) -> Self:
        return self.become(self + other)

    def __isub__(self, other: Any) -> Self:
        return self.become(self - other)

    def __imul__(self, other: Any) -> Self:
        return self.become(self * other)

    def __itruediv__(self, other: Any) -> Self:
        return self.become(self / other)

    def __ipow__(self, other: Any) -> Self:
        return self.become(self**other)

    def __imod__(self, other: Any) -> Self:
        return self.become(self % other)

    def __ifloordiv__(self, other: Any) -> Self:
        return self.become(self // other)

    def __getitem__(self, key: Any) -> Any:
        return RULES[Tensor.__getitem__](self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        _called(Tensor.__setitem__, self, key, value)

    def __gt__(self, other: Any) -> Any:
        return _called(torch.gt, self, other)

    def __ge__(self, other: Any) -> Any:
        return _called(torch.ge, self, other)

    def __lt__(self, other: Any) -> Any:
        return _called(torch.lt, self, other)

    def __le__(self, other: Any) -> Any:
        return _called(torch.le, self, other)

    def __eq__(self, other: object) -> Any:
        return _called(torch.eq, self, other) if isinstance(other, _COMPARED) else NotImplemented

    def __ne__(self, other: object) -> Any:
        return _called(torch.ne, self, other) if isinstance(other, _COMPARED) else NotImplemented

    __hash__ = object.__hash__


#: Types whose values are compared; with anything else `==` compares identity.
_COMPARED = (TensorOperators, Tensor, numbers.Number)
