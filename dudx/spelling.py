"""How derivatives and arithmetic are spelled: `xxt` for two derivatives along x and one along t, torch.add for +."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor


def axes_named(name: str, inputs: Sequence[str]) -> tuple[int, ...] | None:
    """The axes spelled by a chain of input names, longest first: "xxt" is (0, 0, 1) for inputs x and t."""
    if not name:
        return ()
    for axis in sorted(range(len(inputs)), key=lambda i: -len(inputs[i])):
        if name.startswith(inputs[axis]):
            rest = axes_named(name[len(inputs[axis]) :], inputs)
            if rest is not None:
                return (axis, *rest)
    return None


def _symbolic_functions() -> dict[str, Callable[[Any, Any], Any]]:
    """Torch's spellings of + - *, which dispatch here when the other operand is a tensor.

    One of the two operands is a field, which has the methods. These are called by name: torch.compile would send the
    operators themselves through here again.
    """

    def is_field(value: object) -> bool:
        return not isinstance(value, Tensor | numbers.Number)

    def add(a: Any, b: Any) -> Any:
        return a.__add__(b) if is_field(a) else b.__radd__(a)

    def subtract(a: Any, b: Any) -> Any:
        return a.__sub__(b) if is_field(a) else b.__rsub__(a)

    def multiply(a: Any, b: Any) -> Any:
        return a.__mul__(b) if is_field(a) else b.__rmul__(a)

    # By name: functions as keys are objects that torch.compile would have to guard, and cannot.
    table = {"add": add, "sub": subtract, "subtract": subtract, "mul": multiply, "multiply": multiply}
    table |= {"__add__": add, "__sub__": subtract, "__mul__": multiply}
    # The reflected methods are called as (tensor, field) for field + tensor; Tensor.__rsub__(a, b) is b - a.
    return table | {"__radd__": add, "__rmul__": multiply, "__rsub__": lambda a, b: subtract(b, a)}


SYMBOLIC = _symbolic_functions()
