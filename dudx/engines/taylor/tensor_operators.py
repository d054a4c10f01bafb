"""Python's operators for a class that stands in for a tensor: each calls the torch function of the same meaning."""

from __future__ import annotations

import numbers
from abc import abstractmethod
from collections.abc import Callable
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


def _operator(function: Any) -> Callable[[Any, Any], Any]:
    """An operator of two arguments."""

    def operator(self: Any, other: Any) -> Any:
        return _called(function, self, other)

    return operator


def _reflected(name: str) -> Callable[[Any, Any], Any]:
    """A reflected operator; by name, as torch.compile copies a function written in Python that a closure holds."""

    def operator(self: Any, other: Any) -> Any:
        return _called(getattr(Tensor, name), self, other)

    return operator


def _in_place(function: Any) -> Callable[[Any, Any], Any]:
    """An operator in place."""

    def operator(self: Any, other: Any) -> Any:
        return self.become(_called(function, self, other))

    return operator


def _comparison(function: Any) -> Callable[[Any, object], Any]:
    """A comparison of values; with anything that has none `==` compares identity."""

    def operator(self: Any, other: object) -> Any:
        compared = isinstance(other, (TensorOperators, Tensor, numbers.Number))
        return _called(function, self, other) if compared else NotImplemented

    return operator


class TensorOperators:
    """Operators of a tensor. Operators in place replace the content of the object."""

    __add__ = __radd__ = _operator(torch.add)
    __sub__, __rsub__ = _operator(torch.sub), _reflected("__rsub__")
    __mul__ = __rmul__ = _operator(torch.mul)
    __truediv__, __rtruediv__ = _operator(torch.div), _reflected("__rtruediv__")
    __floordiv__, __rfloordiv__ = _operator(torch.floor_divide), _reflected("__rfloordiv__")
    __mod__, __rmod__ = _operator(torch.remainder), _reflected("__rmod__")
    __pow__, __rpow__ = _operator(torch.pow), _reflected("__rpow__")
    __matmul__, __rmatmul__ = _operator(torch.matmul), _reflected("__rmatmul__")

    __iadd__, __isub__, __imul__ = _in_place(torch.add), _in_place(torch.sub), _in_place(torch.mul)
    __itruediv__, __ifloordiv__ = _in_place(torch.div), _in_place(torch.floor_divide)
    __imod__, __ipow__ = _in_place(torch.remainder), _in_place(torch.pow)

    __gt__, __ge__ = _operator(torch.gt), _operator(torch.ge)
    __lt__, __le__ = _operator(torch.lt), _operator(torch.le)
    __eq__, __ne__ = _comparison(torch.eq), _comparison(torch.ne)
    __hash__ = object.__hash__

    @abstractmethod
    def become(self, content: Any) -> Self:
        """Replace the content of this object."""

    def __neg__(self) -> Any:
        return _called(torch.neg, self)

    def __pos__(self) -> Self:
        return self

    def __abs__(self) -> Any:
        return _called(torch.abs, self)

    def __getitem__(self, key: Any) -> Any:
        return RULES[Tensor.__getitem__](self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        _called(Tensor.__setitem__, self, key, value)
