"""Tensor operations on fields: operators, indices and torch functions; and sentences for what a field cannot do."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from dudx.backend.containers import flattened, mapped
from dudx.errors import InputError

# Functions are told apart by their names in dictionaries: torch.compile can look up a name, but not take it apart.
#: Functions that return a new tensor of the shape of another.
_NEW_TENSORS = dict.fromkeys(name for name in dir(torch) if name.endswith("_like"))
_INDEXING = {"__getitem__": None, "__setitem__": None}

#: Functions that write into an argument.
_WRITING = dict.fromkeys(
    name
    for name in {*dir(torch), *dir(torch.nn.functional), *dir(Tensor)}
    if (name.endswith("_") and not name.endswith("__"))
    or (name.startswith("__i") and name not in ("__invert__", "__index__", "__int__", "__init__", "__init_subclass__"))
    or name == "__setitem__"
)

#: NumPy functions that are operators, for a NumPy number on the left: np.float64(2) * u.
_OF_NUMPY = {
    "add": operator.add, "subtract": operator.sub, "multiply": operator.mul, "divide": operator.truediv,
    "power": operator.pow, "greater": operator.gt, "greater_equal": operator.ge, "less": operator.lt,
    "less_equal": operator.le, "equal": operator.eq, "not_equal": operator.ne,
}  # fmt: skip

#: Methods and functions that give the memory of a tensor away, where it can be read and written without a graph.
_LEAVING = dict.fromkeys(("numpy", "__dlpack__", "to_dlpack", "data_ptr", "storage", "untyped_storage"))

_IN_PLACE = (
    "A field cannot be written to, as its derivatives are those of what it was computed from; write v = v * u instead "
    "of v.mul_(u), torch.where instead of assigning to an index, and leave out= and inplace= away."
)


class FieldOperators:
    """Operations that are computed by torch, as opposed to those that keep a field symbolic."""

    _values: Any
    _linear: Any
    _computed: Any
    _sources: Any
    _apply: Any
    _tensor: Any

    def __rtruediv__(self, other: object) -> Any:
        return self._apply(operator.truediv, other, self)

    def __pow__(self, other: object) -> Any:
        return self._apply(torch.pow, self, _as_number(other))

    def __rpow__(self, other: object) -> Any:
        return self._apply(torch.pow, other, self)

    def __matmul__(self, other: object) -> Any:
        return self._apply(torch.matmul, self, other)

    def __rmatmul__(self, other: object) -> Any:
        return self._apply(torch.matmul, other, self)

    def __abs__(self) -> Any:
        return self._apply(torch.abs, self)

    def __gt__(self, other: object) -> Any:
        return self._apply(torch.gt, self, _as_number(other))

    def __ge__(self, other: object) -> Any:
        return self._apply(torch.ge, self, _as_number(other))

    def __lt__(self, other: object) -> Any:
        return self._apply(torch.lt, self, _as_number(other))

    def __le__(self, other: object) -> Any:
        return self._apply(torch.le, self, _as_number(other))

    def __eq__(self, other: object) -> Any:
        return self._apply(torch.eq, self, _as_number(other))

    def __ne__(self, other: object) -> Any:
        return self._apply(torch.ne, self, _as_number(other))

    __hash__ = object.__hash__

    def __and__(self, other: object) -> Any:
        return self._apply(torch.bitwise_and, self, other)

    def __rand__(self, other: object) -> Any:
        return self._apply(torch.bitwise_and, other, self)

    def __or__(self, other: object) -> Any:
        return self._apply(torch.bitwise_or, self, other)

    def __ror__(self, other: object) -> Any:
        return self._apply(torch.bitwise_or, other, self)

    def __invert__(self) -> Any:
        return self._apply(torch.bitwise_not, self)

    # -- indices -------------------------------------------------------------------------------------------------

    def __getitem__(self, key: Any) -> Any:
        shape = tuple(self._computed.shape) if isinstance(self._computed, Tensor) else self._values.shape
        if _takes_everything(key, shape):
            return self  # and stays an expression that can be differentiated
        if self._values.recording:
            _check_index(self._values.like.new_empty(shape), key, shape)  # as asking for numbers would be recorded
        return self._apply(operator.getitem, self, key)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._apply(torch.unbind, self))

    def __len__(self) -> int:
        return len(self._tensor())

    # -- what a field cannot do ----------------------------------------------------------------------------------

    def __setitem__(self, key: object, value: object) -> None:
        raise InputError(_IN_PLACE)

    def __bool__(self) -> bool:
        raise InputError("A residual cannot branch on the value of a field; use torch.where instead of if.")

    def __float__(self) -> float:
        raise InputError(
            "A field is not one number: functions of it are those of torch, torch.sin(u) instead of math.sin(u)."
        )

    __int__ = __complex__ = __float__  # type: ignore[assignment]

    def __array__(self, *args: object, **kwargs: object) -> Any:
        raise InputError("A field cannot become a NumPy array; use functions of torch, such as torch.sin(u).")

    def __array_function__(self, function: Callable[..., Any], *_: object) -> Any:
        raise InputError(_numpy_function(function.__name__))

    def __array_ufunc__(self, function: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        """Operators with a NumPy number; other functions of NumPy are refused."""
        applied = _OF_NUMPY.get(function.__name__)
        if applied is None or method != "__call__" or kwargs:
            raise InputError(_numpy_function(function.__name__))
        for value in inputs:
            if isinstance(value, np.ndarray) and value.ndim:
                raise InputError(
                    f"A field cannot be combined with a NumPy array of shape {value.shape}; make it a tensor, "
                    "torch.as_tensor(values), and give it as data."
                )
        # What an equation in torch.compile reads from NumPy are tensors, and so they are in the call that is recorded.
        convert = torch.as_tensor if self._values.compiled else np.ndarray.item
        return applied(
            *(convert(np.asarray(value)) if isinstance(value, np.generic | np.ndarray) else value for value in inputs)
        )

    # -- torch functions -----------------------------------------------------------------------------------------

    @classmethod
    def __torch_function__(cls, function: Callable, types: object, args: tuple = (), kwargs: dict | None = None) -> Any:
        """Call a torch function on tensors; sums, differences and products stay symbolic where they can."""
        name, kwargs = getattr(function, "__name__", ""), kwargs or {}
        refuse_leaving(name)
        symbolic = SYMBOLIC.get(name)
        if symbolic is not None and len(args) == 2 and not kwargs:
            return symbolic(*args)
        if name in _NEW_TENSORS:  # a tensor that is not computed from the field, and may be written to
            return function(*tensors_of(args), **tensors_of(kwargs))
        field = next(a for a in flattened((args, kwargs)) if isinstance(a, FieldOperators))
        if writes(name, kwargs):
            return _written(field, function, args, kwargs)
        return field._apply(function, *args, **kwargs)


class ForCompiler(TorchFunctionMode):
    """Give torch functions the arguments that torch.compile can follow.

    It finds fields in lists only, not in tuples, and does not know a NumPy number beside a field.
    """

    def __torch_function__(self, function: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        if getattr(function, "__name__", "") in _INDEXING:  # an index that is a list has another meaning
            return function(*args, **kwargs)
        named = {name: _for_compiler(value) for name, value in kwargs.items()}
        given = [_for_compiler(value) for value in args]
        for value in given:
            if isinstance(value, FieldOperators):  # asked directly: torch.compile cannot follow torch's way to it
                return FieldOperators.__torch_function__(function, types, tuple(given), named)
        return function(*given, **named)


def _for_compiler(value: Any) -> Any:
    if isinstance(value, np.ndarray):  # as which torch.compile sees NumPy numbers
        return torch.as_tensor(value)
    if isinstance(value, tuple) and any(isinstance(item, FieldOperators) for item in value):
        return list(value)
    return value


def tensors_of(value: Any) -> Any:
    """The value with each field replaced by its tensor, also inside the containers that torch functions take."""
    if isinstance(value, FieldOperators):
        return value._tensor()
    if isinstance(value, Tensor) or not isinstance(value, tuple | list | dict):
        return value
    return mapped(value, tensors_of)


def _takes_everything(key: Any, shape: tuple[int, ...]) -> bool:
    """True for an index that takes all of a field: u[:], u[...], and, of one column, u[:, 0:1] or u[:, :1]."""
    parts = key if isinstance(key, tuple) else (key,)
    if len(parts) == 1 and parts[0] is Ellipsis:
        return True
    if parts and parts[0] is Ellipsis:
        parts = (slice(None),) * (len(shape) + 1 - len(parts)) + parts[1:]
    if not 1 <= len(parts) <= len(shape):
        return False
    for part, length in zip(parts, shape, strict=False):
        if not isinstance(part, slice) or part.step not in (None, 1):
            return False
        if part != slice(None) and (length != shape[-1] or part.indices(length) != (0, length, 1)):
            return False
    return all(part == slice(None) for part in parts[: len(shape) - 1])


def _check_index(tensor: Tensor, key: Any, shape: tuple[int, ...]) -> None:
    """Raise an error for an index outside of a field, also for a slice, which torch would take for empty."""
    try:
        tensor[tensors_of(key)]
    except (IndexError, TypeError, ValueError) as error:
        raise InputError(f"The index {key!r} does not fit a field of shape {shape}: {error}.") from error
    parts = key if isinstance(key, tuple) else (key,)
    if all(isinstance(part, slice) for part in parts):
        for part, length in zip(parts, shape, strict=False):
            start, stop = part.start or 0, part.stop
            if stop is not None and length <= start < stop:
                raise InputError(f"The index {key!r} is outside of a field of shape {shape}.")


def _as_number(value: Any) -> Any:
    """A NumPy array without axes as a tensor, which torch functions take beside a tensor."""
    return torch.as_tensor(value) if isinstance(value, np.ndarray) and not value.ndim else value


def refuse_leaving(name: str) -> None:
    """Raise an error for a function that gives the memory of a field away."""
    if name in _LEAVING:
        raise InputError(f"{name} takes the values of a field out of torch, which loses their derivatives.")


def writes(name: str, kwargs: dict[str, Any]) -> bool:
    """True if a torch function of this name writes into one of its arguments."""
    return name in _WRITING or "out" in kwargs


def _written(field: Any, function: Callable[..., Any], args: tuple, kwargs: dict[str, Any]) -> Any:
    """Write the values of fields into a tensor of the user's with a row per point, which stays a tensor."""
    target = kwargs["out"] if "out" in kwargs else args[0]
    if not isinstance(target, Tensor) or not target.ndim or len(target) != field._values.shape[0]:
        raise InputError(_IN_PLACE)
    return function(*tensors_of(args), **tensors_of(kwargs))


def refuse_if_written(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Call a function on tensors, and raise an error if it has written into one of them."""
    tensors = [leaf for leaf in flattened((args, kwargs)) if isinstance(leaf, Tensor)]
    before = [version_of(tensor) for tensor in tensors]
    result = function(*args, **kwargs)
    if before != [version_of(tensor) for tensor in tensors]:
        raise InputError(_IN_PLACE)
    return result


def version_of(tensor: Tensor) -> int:
    """Return how often torch has written into a tensor; 0 for one of inference mode, which does not count."""
    return 0 if tensor.is_inference() else tensor._version


def _numpy_function(name: str) -> str:
    twin = name if hasattr(torch, name) else "…"
    return f"np.{name} does not take fields; use torch.{twin} in a residual."


def _symbolic_functions() -> dict[str, Callable[[Any, Any], Any]]:
    """Torch's names of + - *, which are called where the other operand is a tensor.

    One of the two operands is a field, which has the methods. These are called by name: torch.compile would call the
    operators themselves through `__torch_function__` again.
    """

    def is_field(value: object) -> bool:
        return isinstance(value, FieldOperators)

    def add(a: Any, b: Any) -> Any:
        return a.__add__(b) if is_field(a) else b.__radd__(a)

    def subtract(a: Any, b: Any) -> Any:
        return a.__sub__(b) if is_field(a) else b.__rsub__(a)

    def multiply(a: Any, b: Any) -> Any:
        return a.__mul__(b) if is_field(a) else b.__rmul__(a)

    # By name: torch.compile would need a guard for each function used as a key, and cannot add one.
    table = {"add": add, "sub": subtract, "subtract": subtract, "mul": multiply, "multiply": multiply}
    table |= {"__add__": add, "__sub__": subtract, "__mul__": multiply}
    # The reflected methods are called as (tensor, field) for field + tensor; Tensor.__rsub__(a, b) is b - a.
    return table | {"__radd__": add, "__rmul__": multiply, "__rsub__": lambda a, b: subtract(b, a)}


SYMBOLIC = _symbolic_functions()
